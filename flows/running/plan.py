"""Plan first, then run. Stored artifacts are found without an orchestrator, and only missing ones are made."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flows.experiment import experiment
from flows.running.sessions import left_out, stages_of
from flows.study.resolve import Study
from storage.artifacts.schemas import Benchmark, Pool, Splits
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.policies import Policy, Sampling
from tasks.engines.hardware import Hardware
from tasks.metering import OCCUPYING
from tasks.rollouts import account_of
from tasks.stage import Step


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan. reused: the artifact is stored, and no input of it will be remade. left: the artifact, and
    all that depends on it, are left to another machine (`hardware.without`)."""

    step: Step
    reused: bool
    left: bool = False

    @property
    def made_here(self) -> bool:
        return not (self.reused or self.left)


def plan(study: Study, store: Store, dag: Callable[[Study], object] = experiment) -> list[Planned]:
    """Return the steps of the DAG in order, each once, without making any."""
    with stages_of(study, store, planning=True) as planning:
        dag(study)
    return looked_up({step.ref: step for step in planning.steps}.values(), store, study.profile.hardware)


def looked_up(steps: Iterable[Step], store: Store, hardware: Hardware) -> list[Planned]:
    """Find out for each step whether it is reused, made here, or left to another machine."""
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
    """Return why the stored artifacts do not allow a missing step; empty if they allow all."""
    conditions = (p.step.condition for p in planned if p.made_here and p.step.ref.kind == "training")
    condition = next((one for one in conditions if one is not None), None)
    return condition.why_not(store) if condition else ""


def is_costly(planned: Sequence[Planned], *besides: str) -> bool:
    """Return whether a missing step needs an accelerator here. besides: kinds that do not count."""
    return any(p.made_here and p.step.ref.kind in OCCUPYING - set(besides) for p in planned)


class Sampled(NamedTuple):
    """The sampling of one step: policy, parameters, and problems (pool, split artifact and split)."""

    policy: Policy
    sampling: Sampling
    pool: Pool
    splits: Splits | Benchmark
    split: str | None


def sampled_here(planned: Iterable[Planned]) -> Iterator[Sampled]:
    """Yield what this machine will sample for missing steps."""
    for given in (p.step.arguments for p in planned if p.made_here):
        if "learner" in given:
            yield Sampled(given["start"], given["rollouts"], given["pool"], given["splits"], "train")
            if given["evaluation_group_size"]:
                yield Sampled(given["start"], given["evaluation"], given["pool"], given["splits"], "heldout")
        elif "policy" in given and "sampling" in given:
            yield Sampled(*(given[name] for name in Sampled._fields))


def has_sampled(planned: Sequence[Planned], store: Store) -> bool:
    """Return whether the store has rollouts of a study, or artifacts made from them."""
    known = {account for account, _ in Ledger(store.root).accounts()}
    made = any(p.reused and p.step.ref.kind in OCCUPYING for p in planned)
    return made or any(account_of(one.policy, one.sampling) in known for one in sampled_here(planned))
