"""A study as one pydantic model, with the range of each field. Files, `--set`, forms and `study show` are views of it.
A changed number is a changed fingerprint, but for `hardware`, which says how stages may use their machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from storage.artifacts.kinds import FROM_EMBEDDINGS
from storage.errors import UserError, did_you_mean
from tasks.domain.arms import ARMS, Arm
from tasks.domain.budget import Budget
from tasks.domain.gate import Gate
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Sampling
from tasks.domain.ranges import MOST, AtLeastOne, Checked, Count, Distinct, Name, OrNone, Seed, Size, Whole, refused_by
from tasks.domain.scaffolds import MATH
from tasks.domain.search.method import CERTAINTY
from tasks.domain.search.registry import method_named
from tasks.domain.statistics.windows import window_named
from tasks.engines.hardware import Hardware


def _named(tables: Any) -> Any:
    """Tables by name, as a file has them: records that know their name."""
    if not isinstance(tables, Mapping):
        return tables
    return [{**table, "name": name} if isinstance(table, Mapping) else table for name, table in tables.items()]


def _written(name: str) -> None:
    if not name.strip():
        raise UserError("it is empty; name a folder, or OWNER/NAME@COMMIT on the hub")


Named = BeforeValidator(_named)
#: A folder or an id on the hub.
Model = Annotated[str, refused_by(_written)]
Sources = Annotated[tuple[str, ...], Distinct]
#: Of a problem, as its source writes it.
Level = Annotated[str, Field(coerce_numbers_to_str=True)]
Methods = Annotated[tuple[Annotated[str, refused_by(method_named)], ...], Distinct]
Windows = tuple[Annotated[str, refused_by(window_named)], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan(Checked):
    """One kind of sampling in a study: how, and how many rollouts a problem."""

    sampling: Sampling
    group_size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening(SamplingPlan):
    """adaptive: leave a problem once a correct and a wrong rollout of it were seen. Its band is the one that the
    whole group has; only fewer rollouts are paid for."""

    adaptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder(Checked):
    """The sentence encoder of the diversity figures. `windows`: parts of a trace that it is shown beside the whole,
    of which it reads the first `max_tokens`; head2000chars is the published opening window."""

    name: Model = "all-mpnet-base-v2"
    max_tokens: AtLeastOne = 384
    windows: Windows = ("first256", "middle256", "last256", "head2000chars")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassK(Checked):
    ks: Annotated[tuple[Size, ...], Field(min_length=1), Distinct] = (1, 2, 4, 8)
    draws: Annotated[Whole, Field(ge=1, le=1_000_000)] = 10_000
    seed: Seed = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Checked):
    """Which problems. `sources`: files and named sets; without any, `synthetic` ones a source, of `levels` by turns.

    limit: draw so many problems at random by `split_seed` (after deduplication), for short runs on real input.
    on_issue: what happens to a problem whose gold fails its self-check: `exclude` or `keep`.
    """

    sources: Sources = ()
    synthetic: Annotated[Whole, Field(ge=0, le=MOST)] = 0
    levels: tuple[Annotated[Level, Field(pattern="^[1-5]$")], ...] = ()
    seed: Seed = 0
    limit: Annotated[AtLeastOne | None, OrNone] = None
    on_issue: Literal["exclude", "keep"] = "exclude"
    heldout_per_source: Count = 25
    split_seed: Seed = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson(Checked):
    """A training before the one that is studied: on all of its pool's training problems, without screening.
    Each lesson starts from the adapter of the one before it, with a fresh optimiser."""

    name: Name
    arms: tuple[str, ...]
    pool: Pool
    training: LearnerConfig
    rollouts: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Checked):
    """Problems beside the held-out ones, whose pass@k is measured before training and after, sampled as `final` is.
    What is, or nearly is, a training problem of the study or of its lessons is not asked.

    levels: the problems of these levels only; empty: all. per_level: so many of each, drawn by hash; None: all.
    """

    name: Name
    sources: Sources
    levels: tuple[Level, ...] = ()
    per_level: Annotated[AtLeastOne | None, OrNone] = None
    seed: Seed = 0
    group_size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(Checked):
    """An objective that a study compares with its own: the same arm under another training."""

    name: str
    training: LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(Checked):
    """Test-time search on the held-out problems, before training and after, sampled as `final` is.

    methods: as `majority` or `majority:width=8` (tasks/domain/search/registry.py); none: not asked. tokens: of prompts
    and completions, after which a problem's search starts no further round. reward: folder of the reward model, or
    sha256:… of one, for methods that are scored by one.
    """

    methods: Methods = ()
    tokens: AtLeastOne = 16_384
    reward: str = ""

    def budgets(self, least: int) -> tuple[int, ...]:
        """The largest, halved as long as one rollout's completion may fit, ascending.

        >>> Search(tokens=1000).budgets(128)
        (250, 500, 1000)
        """
        halved = [self.tokens]
        while halved[-1] // 2 >= least:
            halved.append(halved[-1] // 2)
        return tuple(reversed(halved))

    def check_served(self, max_tokens: int, arms: Sequence[Arm]) -> None:
        """Errors: UserError for two methods that are one, a method in steps of an arm whose scaffold marks none, one
        that lacks its reward model, and for a budget that one rollout may exceed."""
        methods = {name: method_named(name) for name in self.methods}
        stepless = [arm.name for arm in arms if not arm.scaffold.has_steps]
        for name, method in methods.items():
            if method.in_steps and stepless:
                words = f"and the scaffold of {' and '.join(stepless)} marks no reasoning that has steps"
                raise UserError(f"method {name} goes step by step, {words}: leave out one or the other")
            if method.reward not in ("", CERTAINTY) and not self.reward:
                raise UserError(f"method {name} is scored by a reward model: set reward to its folder")
        for one, other in combinations(methods, 2):
            if methods[one] == methods[other]:
                raise UserError(f"methods: {one} and {other} are one method, and would be counted twice")
        if self.methods and max_tokens >= self.tokens:
            words = f"is below one rollout, whose completion alone may take {max_tokens} tokens (max_tokens)"
            raise UserError(f"tokens={self.tokens} {words}: give more, or lower that")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Checked):
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
    model: Model
    arms: Annotated[tuple[str, ...], Distinct]
    seeds: Annotated[tuple[Seed, ...], Distinct] = (0,)
    train_on: Literal["variance", "joint", "all"] = "variance"
    lessons: Annotated[tuple[Lesson, ...], Named] = ()
    screening: Screening
    gate: Gate = field(default_factory=Gate)
    rollouts: Sampling
    training: LearnerConfig
    evaluation: SamplingPlan
    final: SamplingPlan
    asymptote: Annotated[Whole, Field(ge=0, le=MOST)] = 0
    benchmarks: Annotated[tuple[Benchmark, ...], Named] = ()
    objectives: tuple[Objective, ...] = ()
    objective_group_size: Size = 32
    measures: Annotated[tuple[str, ...], Distinct] = ()
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
        """Arms by name: the built-in ones, and the study's own."""
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
