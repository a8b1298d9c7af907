"""The artifacts of an arm that one step of the DAG passes to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from storage.artifacts.schemas import Bands, Diversity, Embeddings, Rollouts, Searches, Training
from tasks.domain.policies import Policy


@dataclass(frozen=True, slots=True)
class Measured:
    """The artifacts of one policy on the held-out problems. `name`: of the policy, in titles. `deep`: more rollouts,
    for the asymptote of pass@k. `benchmarks`: rollouts on each benchmark's problems. `compared`: rollouts for comparing
    objectives. `searches`: by method. `embeddings`, `diversity`: only if the study measures them."""

    name: str
    rollouts: Rollouts
    embeddings: Embeddings | None
    diversity: Diversity | None
    deep: Rollouts | None
    benchmarks: tuple[Rollouts, ...]
    compared: Rollouts | None = None
    searches: tuple[Searches, ...] = ()


@dataclass(frozen=True, slots=True)
class Trained:
    """One arm trained with one seed. `curve`: held-out rollouts at all evaluated steps. `end`: those at the last."""

    seed: int
    training: Training
    curve: tuple[Rollouts, ...]
    end: Measured


@dataclass(frozen=True, slots=True)
class Start:
    """A policy, and the training that has its adapter (None for a base model)."""

    policy: Policy
    training: Training | None = None

    @property
    def name(self) -> str:
        """Return the policy's name in the titles of stages."""
        seed = f", seed {self.policy.seed}" if self.policy.seed else ""
        return f"{self.policy.arm} at step {self.policy.step}{seed}"

    def after(self, training: Training, step: int, seed: int = 0) -> Start:
        return Start(replace(self.policy, adapter=str(training), adapter_step=step, step=step, seed=seed), training)


@dataclass(frozen=True, slots=True)
class Screened:
    """An arm at the start of its main training. rollouts, bands: graded with the study's grader. trained_on: the bands
    of the first grading. The arm trains on these, even if verdicts are overridden later."""

    arm: str
    start: Start
    rollouts: Rollouts
    bands: Bands
    trained_on: Bands


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """An arm trained with one objective and one seed, and its final held-out rollouts. name: of the adapter, in
    titles."""

    name: str
    objective: str
    training: Training
    rollouts: Rollouts


@dataclass(frozen=True, slots=True)
class ArmArtifacts:
    screened: Screened
    start: Measured
    trained: tuple[Trained, ...]
    objectives: tuple[ObjectiveResult, ...] = ()

    @property
    def measured(self) -> tuple[Measured, ...]:
        return (self.start, *(t.end for t in self.trained))
