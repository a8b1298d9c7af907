"""Arms, and seeds of them, at once on this machine, each in a process of its own: one small model leaves the other
cores idle.

They warm the store as GPU workers do, and whoever started them finds their arms made. They end with their starter,
however that one ends; what they made and sampled is kept.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

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
    if len(to_screen := arms_to_screen(study, store)) > 1:
        jobs = [ArmJob(study, store.root, arm, charging, screen_arm) for arm in to_screen]
        _WorkerPool(jobs, places, listener, attempts).run(prepares)
        prepares = None
    if said := why_not(plan(study, store), store):
        raise Parked(said)
    for arms in arms_to_make(study, store):
        rounds = rounds_of(study, arms, len(places))
        if sum(map(len, rounds)) < 2 and not attempts.failed:
            continue
        for parts in rounds:
            lost = {study.profile.arm(arm).head for arm in attempts.failed}
            jobs = [
                ArmJob(part, store.root, arm, charging)
                for part, arm in parts
                if study.profile.arm(arm).head not in lost
            ]
            _WorkerPool(jobs, places, listener, attempts).run(prepares)
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
class _WorkerPool:
    """Jobs that wait, GPUs that are free, and who works on what."""

    waiting: Sequence[ArmJob]
    places: list[tuple[str, ...]]
    listener: Listener
    attempts: Attempts = field(default_factory=Attempts)
    running: dict[Connection, tuple[ArmJob, tuple[str, ...], BaseProcess]] = field(default_factory=dict)
    prepared: Event = field(default_factory=get_context("spawn").Event)

    def run(self, prepares: Callable[[], object] | None = None) -> None:
        """prepares: makes what all jobs need, while the first of them start their engines."""
        release_memory()
        grace = GRACE_SECONDS
        try:
            self._fill()
            if prepares is not None:
                prepares()
            self.prepared.set()
            while self.waiting or self.running:
                self._fill()
                for line in wait(list(self.running)):
                    assert isinstance(line, Connection)
                    self._receive(line)
        except KeyboardInterrupt:
            grace = GRACE_AFTER_CTRL_C
            raise
        finally:
            left = [process for *_, process in self.running.values() if process.pid]
            for process in left:
                process.terminate()
            until = time.monotonic() + grace
            for process in left:
                process.join(max(0.0, until - time.monotonic()))
                process.kill()

    def _fill(self) -> None:
        while self.waiting and self.places:
            self._start(self.waiting[0], self.places.pop(0))
            self.waiting = self.waiting[1:]

    def _start(self, job: ArmJob, gpus: tuple[str, ...]) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(job, theirs, self.prepared), name=job.arm)
        # known before it starts: a run that is stopped in between must end it too
        self.running[ours] = (job, gpus, process)
        with children_see(gpus), deaf_children():  # Ctrl-C reaches this process, which then sends them SIGTERM
            process.start()
        theirs.close()

    def _receive(self, line: Connection) -> None:
        try:
            message = line.recv()
        except EOFError:
            job, gpus, process = self.running.pop(line)
            process.join()
            self.places.append(gpus)
            if process.exitcode and process.exitcode > 0:
                self.attempts.note(job.arm, UserError("its process failed; its own error is above"))
            elif process.exitcode:
                lost = f"its process ended early (exit code {process.exitcode}); the same command goes on"
                self.attempts.note(job.arm, Parked(lost))
            return
        if isinstance(message, Progress):
            self.listener(message)
        elif isinstance(message, Parked):
            raise message
        else:
            self.attempts.note(self.running[line][0].arm, message)


def _work(job: ArmJob, line: Connection, prepared: Event) -> None:
    """In the arm's own process. Sends every Progress, or what stopped it."""
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    one_at_a_time = threading.Lock()

    def tell(said: Progress | UserError) -> None:
        with one_at_a_time:
            try:
                line.send(said)
            except BrokenPipeError:  # nobody is there to read of it
                os._exit(1)

    store = Store(job.root)
    try:
        with stopped_by_signals(), patient(), metered(job.charging.meter(job.study, store), tell) as charged:
            sampled = samples(job.study, store, lambda study: job.make(study, job.arm))
            with stages_of(job.study, store, charged) as current:
                begin_sampler(job.study, sampled, current.toolbox)
                prepared.wait()
                job.make(job.study, job.arm)
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
