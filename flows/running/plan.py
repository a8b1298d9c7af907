"""Plan, then run: what is there is said at once, without an orchestrator; only what is missing is made."""

from __future__ import annotations

import _weakrefset
import signal
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TypeVar

from flows.arm import heads, run_arm
from flows.experiment import experiment
from flows.running.sessions import stages_of
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Parked
from tasks.domain.arms import ARMS
from tasks.metering import OCCUPYING
from tasks.stage import Progress, Step

T = TypeVar("T")
#: A signal that came where an exception would be lost is answered this much later.
RETRY_SECONDS = 0.05
#: For so long an import is waited for: it may take longer than a pre-empted machine has.
PATIENCE_SECONDS = 10.0
#: Where weak references are cleared.
CALLBACKS = (weakref.__file__, _weakrefset.__file__)


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan. `reused`: the store has it and nothing that it came from will be remade."""

    step: Step
    reused: bool


def plan(study: Study, store: Store, dag: Callable[[Study], object] = experiment) -> list[Planned]:
    """The DAG's steps in order, each once, without making any."""
    with stages_of(study, store, planning=True) as planning:
        dag(study)
    steps = list({step.ref: step for step in planning.steps}.values())
    remade: set[str] = set()
    planned = []
    for step in steps:
        inputs = {ref for refs in step.recipe.inputs.values() for ref in refs}
        reused = not (inputs & remade) and store.fresh(step.ref)
        if not reused:
            remade.add(str(step.ref))
        planned.append(Planned(step, reused))
    return planned


def is_costly(planned: Sequence[Planned], without: Sequence[str] = ()) -> bool:
    """Whether something is to be made here that occupies an accelerator."""
    return any(not p.reused and p.step.ref.kind in OCCUPYING - set(without) for p in planned)


def arms_to_make(study: Study, store: Store) -> Iterator[list[str]]:
    """Arms that lack something costly, in rounds of those that can be made at once; a round is planned when it is its
    turn, for it may be evaluated with what the one before has made."""
    for arms in _rounds(study.profile.arms):
        without = study.profile.hardware.without
        yield [arm for arm in arms if is_costly(plan(study, store, lambda s, arm=arm: run_arm(s, arm)), without)]


def _rounds(arms: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arms that can be made at once: one of each training, then those that are evaluated with an adapter of these."""
    first = [h if h in arms else next(arm for arm in arms if ARMS[arm].trained_as == h) for h in heads(arms)]
    return first, [arm for arm in arms if arm not in first]


def execute(
    study: Study, store: Store, listener: Callable[[Progress], None], dag: Callable[[Study], T] = experiment
) -> T:
    """Run a DAG in this process, without an orchestrator."""
    with stages_of(study, store, listener):
        return dag(study)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """A pre-empted machine says SIGTERM: stop within 30 s, which loses the batch or step in flight and nothing else.
    A pack, an engine's step or a checkpoint that has begun is finished first; that is what takes time."""
    told: list[float] = []

    def stop(_: int, frame: FrameType | None) -> None:
        told.append(time.monotonic())
        if _swallows(frame) or (_imports(frame) and told[-1] - told[0] < PATIENCE_SECONDS):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
            return
        raise Parked("stopped by SIGTERM: all finished rollouts and steps are kept; the same command goes on")

    was = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in was.items():
            signal.signal(number, handler)


def _swallows(frame: FrameType | None) -> bool:
    """Whether an exception raised here would be printed and lost, as in a finaliser or a weak reference's callback."""
    return any(code.co_name == "__del__" or code.co_filename in CALLBACKS for code in _stack(frame))


def _imports(frame: FrameType | None) -> bool:
    """Whether an import is under way: who does without a library that cannot be imported takes the exception for that,
    and C++ that calls Python while it loads ends the process."""
    return any(code.co_filename.startswith("<frozen importlib") for code in _stack(frame))


def _stack(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
