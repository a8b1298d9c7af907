"""@stage: from a recipe to a fingerprint, and to an artifact in the store.

A call of a stage computes the Ref of its artifact from the stage's name and version, its arguments, and the refs of its
inputs. A planning session only records the call. Any other session makes the artifact if the store does not have it.
With an orchestrator the call is one of its tasks.
"""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar

import pyarrow as pa

from storage.artifacts.fingerprint import fingerprint
from storage.artifacts.manifest import Recipe, declared, identity_of, provenance, recipe_of
from storage.artifacts.ref import Ref
from storage.artifacts.rows import PART_ROWS as PART_ROWS
from storage.artifacts.rows import Payload
from storage.artifacts.rows import beside as beside
from storage.artifacts.store import Store
from storage.errors import Parked
from storage.ledger import Ledger
from storage.stopping import end_if_stopped
from tasks.engines.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition for a step. after: artifacts that must exist first. why_not: returns why it fails, or empty."""

    after: tuple[Ref, ...]
    why_not: Callable[[Store], str]


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a stage. arguments: as the caller gave them. make: returns the artifact's rows."""

    title: str
    ref: Ref
    recipe: Recipe
    arguments: Mapping[str, Any]
    make: Callable[[], pa.Table | Payload]
    condition: Condition | None = None

    @property
    def awaited(self) -> tuple[Ref, ...]:
        """Return the artifacts that must exist before the step is made: its inputs, and those of its condition."""
        return (*self.recipe.input_refs, *(self.condition.after if self.condition else ()))


@dataclass(frozen=True, slots=True)
class Progress:
    """An event for the session's listener: `reused`, `started`, `advanced`, `noted` (a remark to keep), `made`. values:
    numbers of a training step. examples: rows of some of its rollouts."""

    event: str
    title: str
    ref: Ref
    done: int = 0
    total: int = 0
    unit: str = "rows"
    seconds: float = 0.0
    detail: str = ""
    values: Mapping[str, float] = field(default_factory=dict, compare=False)
    examples: Sequence[Mapping[str, Any]] = field(default=(), compare=False)


P = ParamSpec("P")
K = TypeVar("K", bound=Ref)


@dataclass(slots=True)
class Session:
    """How this process executes calls of stages. A session never changes a result.

    planning: only record the calls. wrap: lets an orchestrator run a step as its task. without: kinds that are not made
    here; a missing artifact of such a kind, and all steps that need it, are left to another machine. elsewhere: returns
    whether another process makes a missing step. steps: the calls so far. done: artifacts that were made or found here.
    made: artifacts that were made here.
    """

    store: Store
    toolbox: Toolbox
    planning: bool = False
    listener: Callable[[Progress], None] = lambda _: None
    wrap: Callable[[Step, Callable[[], bool]], None] | None = None
    without: frozenset[str] = frozenset()
    elsewhere: Callable[[Step], bool] | None = None
    steps: list[Step] = field(default_factory=list)
    done: set[Ref] = field(default_factory=set)
    made: list[Ref] = field(default_factory=list)

    def run(self, step: Step) -> None:
        end_if_stopped()
        self.steps.append(step)
        if not (self.planning or step.ref in self.done or self._is_left(step)):
            self.carry_out(step)

    def carry_out(self, step: Step) -> None:
        """Make the step's artifact, or reuse it. With an orchestrator, this is one of its tasks."""
        if self.wrap is None:
            self.ensure(step)
        else:
            self.wrap(step, lambda: self.ensure(step))
        self.done.add(step.ref)

    def _is_left(self, step: Step) -> bool:
        if not (self.without or self.elsewhere) or self.store.fresh(step.ref):
            return False
        left = step.ref.kind in self.without or (self.elsewhere is not None and self.elsewhere(step))
        return left or not all(map(self.store.fresh, step.awaited))

    def ensure(self, step: Step) -> bool:
        """Make the artifact or find it. Return whether it was found. Raise Parked if the step's condition fails."""
        if self.store.fresh(step.ref):
            self.listener(Progress("reused", step.title, step.ref))
            return True
        if step.condition is not None and (why_not := step.condition.why_not(self.store)):
            raise Parked(why_not)
        with self.store.making(
            step.ref, lambda who: self.listener(Progress("noted", step.title, step.ref, detail=who))
        ):
            if self.store.fresh(step.ref):
                self.listener(Progress("reused", step.title, step.ref))
                return True
            self._make(step)
        return False

    @contextmanager
    def at_work_on(self, step: Step) -> Iterator[None]:
        """Charge the costs of this block to the step."""
        self.listener(Progress("started", step.title, step.ref))
        token = _step.set(step)
        try:
            yield
        finally:
            _step.reset(token)

    def _make(self, step: Step) -> None:
        began = time.perf_counter()
        with self.at_work_on(step):
            made = step.make()
            payload = made if isinstance(made, Payload) else Payload(made)
            seconds = time.perf_counter() - began
            rows = self.store.write(step.ref, payload, step.recipe, provenance(seconds, payload.notes))
        self.store.finish_work(step.ref)
        self.made.append(step.ref)
        seconds = time.perf_counter() - began
        self.listener(Progress("made", step.title, step.ref, done=rows, total=rows, seconds=seconds))


_session: ContextVar[Session] = ContextVar("varband_session")
_step: ContextVar[Step] = ContextVar("varband_step")
_condition: ContextVar[Condition | None] = ContextVar("varband_condition", default=None)


@contextmanager
def session(current: Session) -> Iterator[Session]:
    """Execute every stage call of the block in this session."""
    token = _session.set(current)
    try:
        yield current
    finally:
        _session.reset(token)


@contextmanager
def only_noted() -> Iterator[list[Step]]:
    """Record the stage calls of the block in the yielded list, and do not execute them."""
    with session(replace(_session.get(), planning=True, steps=[])) as noting:
        yield noting.steps


@contextmanager
def provided(condition: Condition | None) -> Iterator[None]:
    """Make the steps of the block only if the condition holds."""
    token = _condition.set(condition)
    try:
        yield
    finally:
        _condition.reset(token)


def store() -> Store:
    return _session.get().store


def ledger() -> Ledger:
    return Ledger(_session.get().store.root)


def toolbox() -> Toolbox:
    """Return the engines of this process, and the paths of models and files."""
    return _session.get().toolbox


def workdir() -> Path:
    """Return the work folder of the current step, which survives a crash."""
    current = _session.get()
    folder = current.store.root / ".work" / str(_step.get().ref)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def making() -> Ref:
    """Return the ref of the artifact that is being made."""
    return _step.get().ref


def progress(done: int, total: int, unit: str = "rows", detail: str = "", event: str = "advanced", **more: Any) -> None:
    """Report the progress of the current step, or (`noted`) a remark on it. more: further fields of Progress."""
    end_if_stopped()
    step = _step.get()
    _session.get().listener(Progress(event, step.title, step.ref, done, total, unit, detail=detail, **more))


@dataclass(frozen=True)
class Stage(Generic[P, K]):
    """A function from artifacts and arguments to one artifact, with a version. A call returns the artifact's Ref."""

    kind: type[K]
    version: int
    function: Callable[P, pa.Table | Payload]
    title: str

    @property
    def name(self) -> str:
        return self.function.__name__

    def titled(self, title: str) -> Self:
        """Return the stage with another display title. The title does not enter the recipe."""
        return replace(self, title=title)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> K:
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        given, make = bound.arguments, partial(self.function, *bound.args, **bound.kwargs)
        ref, recipe = self.named(given), recipe_of(self.name, self.version, given)
        _session.get().run(Step(self.title, ref, recipe, given, make, _condition.get()))
        return ref

    def named(self, arguments: Mapping[str, Any]) -> K:
        """Return the ref of the artifact that a call with these arguments would make."""
        return self.kind.of(fingerprint(identity_of(self.name, self.version, arguments, declared(self.function))))


def stage(kind: type[K], *, version: int) -> Callable[[Callable[P, pa.Table | Payload]], Stage[P, K]]:
    """Turn a function that returns a table into a stage. Increase `version` when the stage's rows change."""

    def decorate(function: Callable[P, pa.Table | Payload]) -> Stage[P, K]:
        made = Stage(kind, version, function, function.__name__.replace("_", " "))
        STAGES[made.name] = made
        return made

    return decorate


#: All imported stages, by name.
STAGES: dict[str, Stage[..., Any]] = {}
