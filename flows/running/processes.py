"""Arms at once on this machine, each in a process of its own: one small model leaves the other cores idle.

They warm the store as GPU workers do, and whoever started them finds their arms made. They end with their starter,
however that one ends; what they made and sampled is kept.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from flows.arm import rounds, run_arm
from flows.problems import prepare
from flows.running.plan import execute, is_costly, plan, stopped_by_sigterm
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.records.spending import Journal
from tasks.domain.prices import Prices
from tasks.engines.toolbox import Hardware
from tasks.metering import Budget, Meter, metered
from tasks.stage import Progress

#: A process that was told to stop finishes its batch, pack or checkpoint.
GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Errand:
    """One arm for one process, charged to the run that wants it."""

    study: Study
    root: Path
    arm: str
    run: str
    budget: Budget
    prices: Prices


def warm(
    study: Study, store: Store, run: str, budget: Budget, prices: Prices, listener: Callable[[Progress], None]
) -> None:
    """Make the arms that lack something costly, `hardware.arms_at_once` of them at a time; nothing to do for one arm.

    listener: hears the events of all of them. Errors: as those of one arm; the others are stopped first.
    """
    hardware = study.profile.hardware
    if hardware.arms_at_once == 1 or len(places := gpus_apart(hardware)) == 1:
        return
    for arms in rounds(study.profile.arms):
        lacking = [a for a in arms if is_costly(plan(study, store, lambda s, arm=a: run_arm(s, arm)))]
        errands = [Errand(study, store.root, arm, run, budget, prices) for arm in lacking]
        if len(errands) > 1:
            execute(study, store, hardware, listener, prepare)
            _Crew(errands, places, listener).work()


def gpus_apart(hardware: Hardware) -> list[str]:
    """The GPUs that each of the arms at once may see, as CUDA_VISIBLE_DEVICES spells them; on a CPU there are none to
    share out. At least one place."""
    if hardware.device != "cuda":
        return [""] * hardware.arms_at_once
    import torch

    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = seen.split(",") if seen else [str(i) for i in range(torch.cuda.device_count())]
    each = hardware.gpus
    apart = [",".join(gpus[i : i + each]) for i in range(0, len(gpus) - each + 1, each)]
    return apart[: hardware.arms_at_once] or [",".join(gpus)]


@contextmanager
def _seeing(gpus: str) -> Iterator[None]:
    """What is started meanwhile sees these GPUs alone."""
    was = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    try:
        yield
    finally:
        if was is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = was


@dataclass(slots=True)
class _Crew:
    waiting: Sequence[Errand]
    places: list[str]
    listener: Callable[[Progress], None]
    running: dict[Connection, tuple[Errand, str, BaseProcess]] = field(default_factory=dict)

    def work(self) -> None:
        try:
            while self.waiting or self.running:
                while self.waiting and self.places:
                    self._start(self.waiting[0], self.places.pop(0))
                    self.waiting = self.waiting[1:]
                for line in wait(list(self.running)):
                    assert isinstance(line, Connection)
                    self._hear(line)
        finally:
            left = [process for *_, process in self.running.values()]
            for process in left:
                process.terminate()
            for process in left:
                process.join(GRACE_SECONDS)
                process.kill()

    def _start(self, errand: Errand, gpus: str) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_carry_out, args=(errand, theirs), name=errand.arm)
        with _seeing(gpus):
            process.start()
        theirs.close()
        self.running[ours] = (errand, gpus, process)

    def _hear(self, line: Connection) -> None:
        try:
            said = line.recv()
        except EOFError:
            errand, gpus, process = self.running.pop(line)
            process.join()
            self.places.append(gpus)
            if process.exitcode and process.exitcode > 0:
                raise RuntimeError(f"{errand.arm}: its process failed; its own error is above") from None
            if process.exitcode:
                raise Parked(
                    f"{errand.arm}: its process ended early (exit code {process.exitcode}); the same command goes on"
                ) from None
            return
        if isinstance(said, Progress):
            self.listener(said)
        else:
            raise said


def _carry_out(errand: Errand, line: Connection) -> None:
    """In the arm's own process. Sends every Progress, or what stopped it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the starter too, which then says SIGTERM
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    one_at_a_time = threading.Lock()

    def tell(said: Progress | UserError) -> None:
        with one_at_a_time:
            line.send(said)

    hardware = errand.study.profile.hardware
    meter = Meter(Journal(errand.root, errand.run), errand.budget, errand.prices, hardware)
    try:
        with stopped_by_sigterm(), metered(meter):
            store = Store(errand.root)
            execute(errand.study, store, hardware, meter.listening(tell), lambda study: run_arm(study, errand.arm))
    except UserError as refusal:
        tell(refusal)


def _end_with_the_starter() -> None:
    starter = parent_process()
    assert starter is not None
    wait([starter.sentinel])
    os._exit(1)
