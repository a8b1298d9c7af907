"""Plan, then run: what is there is said at once, without an orchestrator; only what is missing is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from flows.experiment import experiment
from flows.running.sessions import left_out, stages_of
from flows.study.resolve import Study
from storage.artifacts.store import Store
from tasks.domain.policies import BaseModel, KVCache, Policy, Sampling
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.metering import OCCUPYING
from tasks.stage import Progress, Step

T = TypeVar("T")
#: Kinds that a sampling engine makes.
SAMPLED = frozenset({"rollouts", "training"})


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan. reused: the store has it and nothing that it came from will be remade. left: it is not made
    on this machine (`hardware.without`), nor what follows from it."""

    step: Step
    reused: bool
    left: bool = False

    @property
    def made_here(self) -> bool:
        return not (self.reused or self.left)


def plan(study: Study, store: Store, dag: Callable[[Study], object] = experiment) -> list[Planned]:
    """The DAG's steps in order, each once, without making any."""
    with stages_of(study, store, planning=True) as planning:
        dag(study)
    return looked_up({step.ref: step for step in planning.steps}.values(), store, study.profile.hardware)


def looked_up(steps: Iterable[Step], store: Store, hardware: Hardware) -> list[Planned]:
    """Return which of a plan's steps the store has by now, and which are left for another machine."""
    without, remade, left = left_out(hardware.without), set[str](), set[str]()
    planned = []
    for step in steps:
        inputs = {ref for refs in step.recipe.inputs.values() for ref in refs}
        reused = not (inputs & remade) and store.fresh(step.ref)
        if not reused:
            remade.add(str(step.ref))
            if step.ref.kind in without or inputs & left:
                left.add(str(step.ref))
        planned.append(Planned(step, reused, str(step.ref) in left))
    return planned


def why_not(planned: Iterable[Planned], store: Store) -> str:
    """Why a step that is to be made may not be, by what the store has so far; empty if none is known to be refused."""
    conditions = (p.step.condition for p in planned if p.made_here and p.step.ref.kind == "training")
    condition = next((one for one in conditions if one is not None), None)
    return condition.why_not(store) if condition else ""


def is_costly(planned: Sequence[Planned], *besides: str) -> bool:
    """Whether something is to be made here that occupies an accelerator. besides: kinds that do not count."""
    return any(p.made_here and p.step.ref.kind in OCCUPYING - set(besides) for p in planned)


def execute(
    study: Study, store: Store, listener: Callable[[Progress], None], dag: Callable[[Study], T] = experiment
) -> T:
    """Run a DAG in this process, without an orchestrator."""
    sampled = samples(study, store, dag)
    with stages_of(study, store, listener) as current:
        begin_sampler(study, sampled, current.toolbox)
        return dag(study)


def to_sample(planned: Iterable[Planned]) -> Iterator[Sampling]:
    """How what is not there is sampled here."""
    for given in _sampled_here(planned, SAMPLED | {"searches"}):
        yield from (value for value in given.values() if isinstance(value, Sampling))


def _sampled_here(planned: Iterable[Planned], kinds: Set[str]) -> Iterator[Mapping[str, object]]:
    """What the stages of these kinds are given that sample here and are not there."""
    return (p.step.arguments for p in planned if p.made_here and p.step.ref.kind in kinds)


def samples(study: Study, store: Store, dag: Callable[[Study], object]) -> tuple[BaseModel, KVCache] | None:
    """Model and cache of what a DAG samples first, where the engine has processes of its own; null where it samples
    nothing."""
    if study.profile.hardware.engine_process == "inside":
        return None
    for given in _sampled_here(plan(study, store, dag), SAMPLED):
        policy = next((value for value in given.values() if isinstance(value, Policy)), None)
        sampling = next((value for value in given.values() if isinstance(value, Sampling)), None)
        if policy and sampling:
            return policy.model, sampling.kv_cache
    return None


def begin_sampler(study: Study, sampled: tuple[BaseModel, KVCache] | None, tools: Toolbox) -> None:
    """Its engine starts while problems are prepared."""
    if sampled is not None:
        model, kv_cache = sampled
        tools.begin_generator(model.sha256, study.profile.training.lora_rank, kv_cache)
