"""A study as one pydantic model, with the range of each field. Study files, `--set`, forms and `varband study settings`
use this model. A changed field changes fingerprints, except in `hardware`."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from storage.artifacts.schemas import FROM_EMBEDDINGS
from storage.errors import UserError, check_known
from tasks.domain.budget import Budget
from tasks.domain.gate import Gate
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Sampling
from tasks.domain.problems.problems import HeldOut
from tasks.domain.ranges import MOST, AtLeastOne, Checked, Count, Distinct, Name, OrNone, Seed, Size, Whole, refused_by
from tasks.domain.scaffolds import ARMS, MATH, Arm
from tasks.domain.search.method import CERTAINTY
from tasks.domain.search.registry import method_named
from tasks.domain.statistics.windows import window_named
from tasks.engines.hardware import Hardware
from tasks.engines.trackers import TrackerName


def _named(tables: Any) -> Any:
    """Return tables by name (the form of a study file) as a list of records with a name field."""
    if not isinstance(tables, Mapping):
        return tables
    return [{**table, "name": name} if isinstance(table, Mapping) else table for name, table in tables.items()]


def _written(name: str) -> None:
    if not name.strip():
        raise UserError("it is empty; give a folder, or OWNER/NAME@COMMIT on the hub")


Named = BeforeValidator(_named)
#: A model: a folder, or an id on the hub.
Model = Annotated[str, refused_by(_written)]
Sources = Annotated[tuple[str, ...], Distinct]
#: A problem's level, as its source writes it.
Level = Annotated[str, Field(coerce_numbers_to_str=True)]
Methods = Annotated[tuple[Annotated[str, refused_by(method_named)], ...], Distinct]
Windows = tuple[Annotated[str, refused_by(window_named)], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan(Checked):
    """One kind of sampling in a study."""

    sampling: Sampling
    """Sampling parameters."""
    group_size: Annotated[Size, Field(description="Rollouts per problem (G).")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening(SamplingPlan):
    """The sampling of the base model that gives each problem its band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder(Checked):
    """The sentence encoder for the figures of diversity."""

    name: Model = "all-mpnet-base-v2"
    """Name under `VARBAND_MODELS`, folder, or `OWNER/NAME@COMMIT`."""
    max_tokens: AtLeastOne = 384
    """Tokens of a text that the encoder reads; the rest is cut off."""
    windows: Windows = ("first256", "middle256", "last256", "head2000chars")
    """Parts of a trace that are embedded beside the whole: `first256`, `middle256`, `last256` (tokens), and
    `head2000chars`, the published opening window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassK(Checked):
    """pass@k of the held-out problems."""

    ks: Annotated[tuple[Size, ...], Field(min_length=1), Distinct] = (1, 2, 4, 8)
    """Values of k."""
    draws: Annotated[Whole, Field(ge=1, le=1_000_000)] = 10_000
    """Resamples of the bootstrap."""
    seed: Seed = 0
    """Seed of the bootstrap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Checked):
    """The problems of a study."""

    sources: Sources = ()
    """Files of problems, named sets, and sets on the hub. Empty: made-up word problems."""
    synthetic: Annotated[Whole, Field(ge=0, le=MOST)] = 0
    """Made-up problems of each of the four kinds, if `sources` is empty."""
    levels: tuple[Annotated[Level, Field(pattern="^[1-5]$")], ...] = ()
    """Levels of made-up problems, used in turn."""
    seed: Seed = 0
    """Seed of the made-up problems."""
    limit: Annotated[AtLeastOne | None, OrNone] = None
    """Number of problems for short runs, chosen at random after duplicates are removed."""
    on_issue: Literal["exclude", "keep"] = "exclude"
    """Whether a problem whose gold fails its check is left out (`exclude`) or kept."""
    heldout_per_source: Count | HeldOut = 25
    """Held-out problems of each source; `all` for a study that trains nothing."""
    split_seed: Seed = 0
    """Seed of the split into training and held-out problems, and of `limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson(Checked):
    """A training before the studied one. A lesson uses all training problems of its pool, without a screening. Each
    lesson starts from the adapter of the lesson before it, with a new optimiser."""

    name: Name
    """Name of the lesson; its table is `[lessons.NAME]`."""
    arms: tuple[str, ...]
    """Arms that are trained with this lesson."""
    pool: Pool
    """Its problems."""
    training: LearnerConfig
    """Its training, with the fields of `training`."""
    rollouts: Sampling
    """Sampling of its training rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Checked):
    """Problems in addition to the held-out ones. Benchmarks are sampled before and after training, as for `final`.
    Problems that equal a training problem of the study, or nearly do, are left out."""

    name: Name
    """Name of the benchmark; its table is `[benchmarks.NAME]`."""
    sources: Sources
    """Files, named sets, or sets on the hub."""
    levels: tuple[Level, ...] = ()
    """Problems of these levels only. Empty: all."""
    per_level: Annotated[AtLeastOne | None, OrNone] = None
    """Number of problems of each level, chosen by hash."""
    seed: Seed = 0
    """Seed of the choice of `per_level` problems."""
    group_size: Size
    """Rollouts per problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(Checked):
    """An objective to compare with the study's own: the same arm with another training."""

    name: str
    """Name of the objective; its table is `[objectives.NAME]`."""
    training: LearnerConfig
    """Its training, with the fields of `training`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(Checked):
    """Test-time search on the held-out problems, before and after training, with the sampling of `final`."""

    methods: Methods = ()
    """Methods of search, such as `majority` or `majority:width=8`."""
    tokens: AtLeastOne = 16_384
    """Token budget of a problem's search, of prompts and completions. When it is used up, no further round starts."""
    reward: str = ""
    """Folder of the reward model, for methods that need one."""

    def budgets(self, least: int) -> tuple[int, ...]:
        """Return the budgets of the search curve, ascending. The largest is halved while one completion may still fit.

        >>> Search(tokens=1000).budgets(128)
        (250, 500, 1000)
        """
        halved = [self.tokens]
        while halved[-1] // 2 >= least:
            halved.append(halved[-1] // 2)
        return tuple(reversed(halved))

    def check_served(self, max_tokens: int, arms: Sequence[Arm]) -> None:
        """Raise UserError for a method with steps on an arm whose scaffold marks none, for a missing reward model, and
        for a budget smaller than one rollout."""
        methods = {name: method_named(name) for name in self.methods}
        stepless = [arm.name for arm in arms if not arm.scaffold.has_steps]
        for name, method in methods.items():
            if method.in_steps and stepless:
                words = f"and the scaffold of {' and '.join(stepless)} marks no steps"
                raise UserError(f"method {name} searches step by step, {words}: remove the method or the arm")
            if method.reward not in ("", CERTAINTY) and not self.reward:
                raise UserError(f"method {name} is scored by a reward model: set reward to its folder")
        if self.methods and max_tokens >= self.tokens:
            words = f"is below one rollout, whose completion alone may take {max_tokens} tokens (max_tokens)"
            raise UserError(f"tokens={self.tokens} {words}: raise tokens or lower max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Checked):
    """One complete study with its name. `own`: the arms that the study defines or changes."""

    name: str
    """Name of the profile that the study is based on."""
    purpose: str
    """The question of the study; the title of its report."""
    title: str = field(default="", compare=False)
    """Name of a team's own study."""
    about: str = field(default="", compare=False)
    """Description of a team's own study."""
    pool: Pool
    """The problems."""
    model: Model
    """Base model: a name under `VARBAND_MODELS`, a folder, or `OWNER/NAME@COMMIT`."""
    arms: Annotated[tuple[str, ...], Distinct]
    """Arms that are compared."""
    seeds: Annotated[tuple[Seed, ...], Distinct] = (0,)
    """Seeds of the training; each trains every arm once. Empty: nothing is trained."""
    train_on: Literal["variance", "joint", "all"] = "variance"
    """Training problems: the arm's own variance band (`variance`), problems in the band of every trained arm
    (`joint`), or `all`."""
    lessons: Annotated[tuple[Lesson, ...], Named] = ()
    """Trainings before the studied one."""
    screening: Screening
    """Sampling of the base model that finds the bands."""
    gate: Gate = field(default_factory=Gate)
    """Limits on the screening that must hold before training."""
    rollouts: Sampling
    """Sampling of the training rollouts."""
    training: LearnerConfig
    """The studied training."""
    evaluation: SamplingPlan
    """Sampling of the held-out problems at steps of the curve."""
    final: SamplingPlan
    """Sampling of the held-out problems before and after training, from which gains are computed."""
    asymptote: Annotated[Whole, Field(ge=0, le=MOST)] = 0
    """Rollouts per held-out problem for pass@k at large k (64, 128). Stored rollouts are reused. 0: none."""
    benchmarks: Annotated[tuple[Benchmark, ...], Named] = ()
    """Further problem sets that are sampled before and after training."""
    objectives: tuple[Objective, ...] = ()
    """Further objectives. Each one also trains every arm, from the same start and with the same seeds."""
    objective_group_size: Size = 32
    """Rollouts per held-out problem for the comparison of objectives."""
    measures: Annotated[tuple[str, ...], Distinct] = ()
    """Measures to compute. Empty: all. Traces are embedded only for `diversity`, `ceilings`, `chain` and `widths`."""
    search: Search = field(default_factory=Search)
    """Test-time search."""
    encoder: Encoder = field(default_factory=Encoder)
    """Sentence encoder of the diversity figures."""
    passk: PassK = field(default_factory=PassK)
    """pass@k of the held-out problems."""
    hardware: Hardware = field(default_factory=Hardware)
    """How stages use their machine. It does not affect fingerprints."""
    budget: Budget = field(default_factory=Budget)
    """The most that a run may spend."""
    tracking: Annotated[tuple[TrackerName, ...], Distinct] = ()
    """Experiment trackers that follow a run. They do not affect artifacts."""
    own: tuple[Arm, ...] = ()

    @property
    def called(self) -> str:
        return self.title or self.name

    @property
    def known_arms(self) -> dict[str, Arm]:
        """Return all arms by name: the built-in ones and the study's own."""
        return ARMS | {arm.name: arm for arm in self.own}

    def arm(self, name: str) -> Arm:
        """Return an arm by its name. Raise UserError if the study does not know the arm."""
        known = self.known_arms
        check_known("arm", name, known)
        return known[name]

    def heads(self, arms: Sequence[str]) -> tuple[str, ...]:
        """Return the trained arms whose adapters these arms use, each once."""
        return tuple(dict.fromkeys(head for arm in arms if (head := self.arm(arm).trained_as) is not None))

    @property
    def borrowed(self) -> dict[str, str]:
        """Return the arms that are evaluated with another arm's adapter, and whose it is."""
        return {name: head for name in self.arms for head in self.heads([name]) if head != name}

    @property
    def own_used(self) -> tuple[Arm, ...]:
        """Return the arms that the study both defines and uses."""
        used = {name for arm in self.arms for name in (arm, self.arm(arm).head)}
        return tuple(arm for arm in self.own if arm.name in used)

    @property
    def embeds(self) -> bool:
        return not self.measures or bool({*self.measures} & FROM_EMBEDDINGS)

    @property
    def trains_on_vectors(self) -> bool:
        """Return whether an objective of the study or of a lesson uses the encoder's vectors."""
        learners = (self.training, *(x.training for x in self.lessons), *(one.training for one in self.objectives))
        return any("vectors" in ADVANTAGES[learner.advantage].needs for learner in learners)

    @property
    def answer_kinds(self) -> tuple[str, ...]:
        """Return the answer kinds of the arms, mathematics first. Each gold must be valid in all these kinds."""
        found = {self.arm(name).scaffold.answer_kind for arm in self.arms for name in (arm, self.arm(arm).head)}
        return tuple(sorted(found, key=lambda kind: (kind != MATH, kind)))

    def base_of(self, name: str) -> str:
        arm = self.arm(name)
        return arm.model or self.arm(arm.head).model or self.model
