"""What a study is made of, and what each of its fields may be. A changed number is a changed fingerprint, but for
`hardware`, which says how stages may use their machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from flows.study.otherwise import Objective
from flows.study.search import Search
from storage.artifacts.kinds.report import FROM_EMBEDDINGS
from storage.errors import UserError, did_you_mean
from tasks.domain.arms import ARMS, Arm
from tasks.domain.budget import Budget
from tasks.domain.gate import Gate
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import MOST, AtLeastOne, LearnerConfig, Size
from tasks.domain.policies import Sampling
from tasks.domain.ranges import Ranged, Seed, Within
from tasks.domain.scaffolds import MATH
from tasks.engines.hardware import Hardware

Count = Annotated[int, Within(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan(Ranged):
    """One kind of sampling in a study: how, and how many rollouts a problem."""

    sampling: Sampling
    group_size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening(SamplingPlan):
    """adaptive: leave a problem once a correct and a wrong rollout of it were seen. Its band is the one that the
    whole group has; only fewer rollouts are paid for."""

    adaptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder(Ranged):
    """The sentence encoder of the diversity figures. `windows`: parts of a trace that it is shown beside the whole,
    of which it reads the first `max_tokens`; head2000chars is the published opening window."""

    name: str = "all-mpnet-base-v2"
    max_tokens: AtLeastOne = 384
    windows: tuple[str, ...] = ("first256", "middle256", "last256", "head2000chars")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassK(Ranged):
    ks: tuple[Size, ...] = (1, 2, 4, 8)
    draws: Annotated[int, Within(1, 1_000_000)] = 10_000
    seed: Seed = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Ranged):
    """Which problems. `sources`: files and named sets; without any, `synthetic` ones a source, of `levels` by turns.

    limit: draw so many problems at random by `split_seed` (after deduplication), for short runs on real input.
    on_issue: what happens to a problem whose gold fails its self-check: `exclude` or `keep`.
    """

    sources: tuple[str, ...] = ()
    synthetic: Annotated[int, Within(0, MOST)] = 0
    levels: tuple[Annotated[int, Within(1, 5)], ...] = ()
    seed: Seed = 0
    limit: AtLeastOne | None = None
    on_issue: Literal["exclude", "keep"] = "exclude"
    heldout_per_source: Count = 25
    split_seed: Seed = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A training before the one that is studied: on all of its pool's training problems, without screening.
    Each lesson starts from the adapter of the one before it, with a fresh optimiser."""

    name: str
    arms: tuple[str, ...]
    pool: Pool
    training: LearnerConfig
    rollouts: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Ranged):
    """Problems beside the held-out ones, whose pass@k is measured before training and after, sampled as `final` is.
    What is, or nearly is, a training problem of the study or of its lessons is not asked.

    levels: the problems of these levels only; empty: all. per_level: so many of each, drawn by hash; null: all.
    """

    name: str
    sources: tuple[str, ...]
    levels: tuple[str, ...] = ()
    per_level: AtLeastOne | None = None
    seed: Seed = 0
    group_size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Ranged):
    """One complete study, by name.

    train_on: `variance`, the arm's own variance band; `joint`, of that what every trained arm has in its own; or `all`,
    for a model too weak to have one.
    asymptote: rollouts of each held-out problem, before training and after, by which pass@k is followed to its end
    (64, 128); what the ledger holds of them is reused. 0: not asked.
    objectives: every arm is trained by each too, from the same start with the same seeds, and compared with `training`
    by `objective_group_size` rollouts of each held-out problem. measures: which of the standard ones are made,
    beside those of what is asked for; none named: all. Where some are named and none of them is made from embeddings
    (`diversity`, `ceilings`, `chain`, `widths`), nothing is embedded. budget: of a run over all its attempts.
    own: arms that the study defines itself, and those of everybody's of which it says another model, an adapter, or
    that they are evaluated as they are. title, about: what a team calls a study of its own and says of it,
    labels; `name` and `purpose` are then those of the profile that it is based on.
    """

    name: str
    purpose: str
    title: str = field(default="", compare=False)
    about: str = field(default="", compare=False)
    pool: Pool
    model: str
    arms: tuple[str, ...]
    seeds: tuple[Seed, ...] = (0,)
    train_on: Literal["variance", "joint", "all"] = "variance"
    lessons: tuple[Lesson, ...] = ()
    screening: Screening
    gate: Gate = field(default_factory=Gate)
    rollouts: Sampling
    training: LearnerConfig
    evaluation: SamplingPlan
    final: SamplingPlan
    asymptote: Annotated[int, Within(0, MOST)] = 0
    benchmarks: tuple[Benchmark, ...] = ()
    objectives: tuple[Objective, ...] = ()
    objective_group_size: Size = 32
    measures: tuple[str, ...] = ()
    search: Search = field(default_factory=Search)
    encoder: Encoder = field(default_factory=Encoder)
    passk: PassK = field(default_factory=PassK)
    hardware: Hardware = field(default_factory=Hardware)
    budget: Budget = field(default_factory=Budget)
    own: tuple[Arm, ...] = ()

    @property
    def called(self) -> str:
        return self.title or self.name

    @property
    def known_arms(self) -> dict[str, Arm]:
        """By name: everybody's, and the study's own."""
        return ARMS | {arm.name: arm for arm in self.own}

    def arm(self, name: str) -> Arm:
        """Errors: UserError for an arm that the study does not know."""
        known = self.known_arms
        if name not in known:
            raise UserError(f"unknown arm {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})")
        return known[name]

    def heads(self, arms: Sequence[str]) -> tuple[str, ...]:
        """The arms that train, each once: those whose adapters these arms are evaluated with."""
        return tuple(dict.fromkeys(head for arm in arms if (head := self.arm(arm).trained_as) is not None))

    @property
    def own_used(self) -> tuple[Arm, ...]:
        """Of its own arms those that it asks."""
        used = {name for arm in self.arms for name in (arm, self.arm(arm).head)}
        return tuple(arm for arm in self.own if arm.name in used)

    @property
    def embeds(self) -> bool:
        """Whether it asks for anything that is made from embeddings."""
        return not self.measures or bool({*self.measures} & FROM_EMBEDDINGS)

    @property
    def trains_on_vectors(self) -> bool:
        """An objective of it, or of a training before its own, is shown the encoder's vectors."""
        learners = (self.training, *(x.training for x in self.lessons), *(one.training for one in self.objectives))
        return any("vectors" in ADVANTAGES[learner.advantage].needs for learner in learners)

    @property
    def answer_kinds(self) -> tuple[str, ...]:
        """Of the arms that it asks: each gold of its problems must be all of them. Mathematics first."""
        found = {self.arm(name).scaffold.answer_kind for arm in self.arms for name in (arm, self.arm(arm).head)}
        return tuple(sorted(found, key=lambda kind: (kind != MATH, kind)))

    def base_of(self, name: str) -> str:
        """The model of an arm, by name."""
        arm = self.arm(name)
        return arm.model or self.arm(arm.head).model or self.model
