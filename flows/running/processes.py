"""Arms, and seeds of them, at once on this machine, each in a process of its own: one small model leaves the other
cores idle.

They warm the store as GPU workers do, and the process that started them finds their arms made. A process keeps its
engine from one job to the next, so the gate between screening and training costs no second start. They end with their
starter, however that one ends; what they made and sampled is kept.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import TracebackType
from typing import Self

from flows.arm import run_arm, screen_arm
from flows.problems import prepare
from flows.running.plan import arms_to_make, arms_to_screen, begin_sampler, execute, plan, samples, why_not
from flows.running.sessions import Charging, Listener, stages_of
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Parked, UserError, disk_fault
from storage.objects import patient
from storage.stopping import deaf_children, stopped_by_signals
from tasks.attempts import Attempts
from tasks.engines.hardware import Hardware, children_see, release_memory, visible_gpus
from tasks.metering import metered
from tasks.stage import Progress

#: A process that was told to stop finishes its batch, pack or checkpoint; after Ctrl-C somebody waits for it.
GRACE_SECONDS, GRACE_AFTER_CTRL_C = 30, 8


@dataclass(frozen=True, slots=True)
class ArmJob:
    """One arm for one process, under all of the study's seeds, charged to the run that wants it. make: its DAG."""

    study: Study
    root: Path
    arm: str
    charging: Charging
    make: Callable[[Study, str], object] = run_arm


def make_arms_at_once(study: Study, store: Store, charging: Charging, listener: Listener) -> None:
    """Make the arms that lack something costly, `hardware.arms_at_once` of them at a time, and where there is room for
    more than the arms, their seeds; nothing to do for one arm with one seed. Where arms train, all of them are
    screened first, for none is trained before the gate has seen all.

    listener: hears the events of all of them.
    Errors: ArmsFailed if some failed, once the others are made; Parked at once, with the others stopped.
    """
    hardware = study.profile.hardware
    if hardware.arms_at_once == 1 or len(places := gpus_apart(hardware)) == 1:
        return
    attempts = Attempts()
    prepares: Callable[[], object] | None = partial(execute, study, store, listener, prepare)
    with Workers(places, listener, attempts) as workers:
        if len(to_screen := arms_to_screen(study, store)) > 1:
            workers.make([ArmJob(study, store.root, arm, charging, screen_arm) for arm in to_screen], prepares)
            prepares = None
        if said := why_not(plan(study, store), store):
            raise Parked(said)
        for arms in arms_to_make(study, store):
            rounds = rounds_of(study, arms, len(places))
            if sum(map(len, rounds)) < 2 and not attempts.failed:
                continue
            for parts in rounds:
                lost = {study.profile.arm(arm).head for arm in attempts.failed}
                left = [(part, arm) for part, arm in parts if study.profile.arm(arm).head not in lost]
                workers.make([ArmJob(part, store.root, arm, charging) for part, arm in left], prepares)
                prepares = None
    attempts.finish(study.profile.arms)


def rounds_of(study: Study, arms: Sequence[str], places: int) -> list[list[tuple[Study, str]]]:
    """Round by round what can be made at once, a process each: the arms; where there are more places than arms, every
    arm under its first seed, and then under each of the others, which share what the first has screened and sampled
    before training."""
    profile = study.profile
    if places <= len(arms) or len(profile.seeds) < 2 or not profile.training.steps:
        return [[(study, arm) for arm in arms]]
    first, *others = (replace(study, profile=replace(profile, seeds=(seed,))) for seed in profile.seeds)
    return [[(first, arm) for arm in arms], [(one, arm) for one in others for arm in arms]]


def gpus_apart(hardware: Hardware) -> list[tuple[str, ...]]:
    """The GPUs that each of the arms at once may see; on a CPU there are none to share out. At least one place."""
    if hardware.device != "cuda":
        return [()] * hardware.arms_at_once
    gpus, each = visible_gpus(), hardware.gpus
    apart = [tuple(gpus[i : i + each]) for i in range(0, len(gpus) - each + 1, each)]
    return apart[: hardware.arms_at_once] or [tuple(gpus)]


@dataclass(slots=True)
class _Worker:
    """A process and the GPUs that it sees. arm: of its newest job, whose engine it holds. idle: that job is made."""

    process: BaseProcess
    gpus: tuple[str, ...]
    arm: str
    idle: bool = False


@dataclass(slots=True)
class Workers:
    """Processes that make jobs, one for each place. places: GPUs that no process sees yet."""

    places: list[tuple[str, ...]]
    listener: Listener
    attempts: Attempts = field(default_factory=Attempts)
    _running: dict[Connection, _Worker] = field(default_factory=dict)
    _prepared: Event = field(default_factory=get_context("spawn").Event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        left = [worker.process for worker in self._running.values() if worker.process.pid]
        for line in () if error else self._running:
            line.close()  # an idle worker ends
        for process in left if error else ():
            process.terminate()
        grace = GRACE_AFTER_CTRL_C if isinstance(error, KeyboardInterrupt) else GRACE_SECONDS
        until = time.monotonic() + grace
        for process in left:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()

    def make(self, jobs: Sequence[ArmJob], prepares: Callable[[], object] | None = None) -> None:
        """Return when the jobs are made or have failed. prepares: makes what all of them need, while the first of them
        start their engines. Errors: Parked, as soon as one meets its budget."""
        release_memory()
        waiting = self._started(jobs)
        if prepares is not None:
            prepares()
        self._prepared.set()
        while waiting or not all(worker.idle for worker in self._running.values()):
            for line in wait(list(self._running)):
                assert isinstance(line, Connection)
                self._receive(line)
            waiting = self._started(waiting)

    def _started(self, jobs: Sequence[ArmJob]) -> list[ArmJob]:
        """Start what there is room for; return the rest. A job goes to the worker that holds its arm's engine."""
        idle = {worker.arm: line for line, worker in self._running.items() if worker.idle}
        rest = []
        for job in sorted(jobs, key=lambda job: job.arm not in idle):
            if (line := idle.pop(job.arm, None)) is None and self.places:
                line = self._new_worker(job, self.places.pop(0))
            elif line is None and idle:
                line = idle.pop(next(iter(idle)))
            if line is None:
                rest.append(job)
                continue
            worker = self._running[line]
            worker.arm, worker.idle = job.arm, False
            with suppress(BrokenPipeError):  # it has just died, and its end is received next
                line.send(job)
        return rest

    def _new_worker(self, job: ArmJob, gpus: tuple[str, ...]) -> Connection:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._prepared), name=job.arm)
        # known before it starts: a run that is stopped in between must end it too
        self._running[ours] = _Worker(process, gpus, job.arm)
        with children_see(gpus), deaf_children():  # Ctrl-C reaches this process, which then sends them SIGTERM
            process.start()
        theirs.close()
        return ours

    def _receive(self, line: Connection) -> None:
        worker = self._running[line]
        try:
            message = line.recv()
        except (EOFError, ConnectionResetError):
            del self._running[line]
            worker.process.join()
            self.places.append(worker.gpus)
            code = worker.process.exitcode
            if worker.idle or not code:
                return
            if code > 0:
                self.attempts.note(worker.arm, UserError("its process failed; its own error is above"))
            else:
                lost = f"its process ended early (exit code {code}); the same command goes on"
                self.attempts.note(worker.arm, Parked(lost))
            return
        if message is None:
            worker.idle = True
        elif isinstance(message, Progress):
            self.listener(message)
        elif isinstance(message, Parked):
            raise message
        else:
            self.attempts.note(worker.arm, message)


def _work(line: Connection, prepared: Event) -> None:
    """In a worker's own process. Make jobs until the line is closed or one fails; send every Progress, None when a job
    is made, and the error that stopped one."""
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    one_at_a_time = threading.Lock()

    def tell(message: Progress | UserError | None) -> None:
        with one_at_a_time:
            try:
                line.send(message)
            except OSError:  # nobody is there to read of it
                os._exit(1)

    def next_job() -> ArmJob | None:
        try:
            return line.recv()
        except EOFError:
            return None

    try:
        if (first := next_job()) is None:
            return
        store = Store(first.root)
        with stopped_by_signals(), patient(), metered(first.charging.meter(first.study, store), tell) as charged:
            sampled = samples(first.study, store, lambda study: first.make(study, first.arm))
            with stages_of(first.study, store, charged) as current:
                begin_sampler(first.study, sampled, current.toolbox)
                prepared.wait()
                job: ArmJob | None = first
                while job is not None:
                    job.make(job.study, job.arm)
                    tell(None)
                    job = next_job()
    except UserError as refusal:
        tell(refusal)
    except Exception as error:
        if (fault := disk_fault(error)) is None:
            raise
        tell(UserError(fault))


def _end_with_the_starter() -> None:
    starter = parent_process()
    assert starter is not None
    wait([starter.sentinel])
    os._exit(1)
