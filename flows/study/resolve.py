"""From a profile and the user's wishes to exactly what will run: overrides applied, files and models found and named
by content. Everything that can be wrong with the input is found here, before work starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from flows.study.changes import differences, value_text, written_out
from flows.study.hub import called, found_source, unfound
from flows.study.layout import enough_gpus, served_ranks, side_by_side, spread
from flows.study.models import (
    check_encoder_positions,
    encoder_folder,
    found_adapters,
    found_bases,
    found_model,
    found_reward_model,
    refuse_other_bases,
    unnamed,
)
from flows.study.profile import Pool, Profile
from flows.study.profiles import PROFILES
from flows.study.sizes import refuse_one_name, refuse_undrawable
from storage.artifacts.store import Store
from storage.errors import NotHere, UserError
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.grading.kinds import faults_of_answer
from tasks.domain.policies import BaseModel, MadeElsewhere
from tasks.domain.problems.problems import PoolPolicy
from tasks.domain.problems.sources import SourceSpec
from tasks.domain.scaffolds import MATH, Scaffold
from tasks.engines.encoding import labelled_sha256
from tasks.engines.hardware import gpu_bytes, num_gpus
from tasks.grading import active_grader
from tasks.pool import as_first_checked

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """The files that a pool is built from, none for problems of the project's own making, and how they are checked."""

    sources: tuple[SourceSpec, ...] = ()
    policy: PoolPolicy = field(default_factory=PoolPolicy)


@dataclass(frozen=True, slots=True)
class Study:
    """A profile whose inputs were found. Pinned here, so that the DAG looks nothing up: grader, whose verdicts its
    tables are made from, and the policy of every pool.

    models: of each arm, and of the arm whose adapter it is evaluated with. adapters: those made elsewhere, by the arm
    that starts from one; ranks: the largest of them by model. pools: the profile's own under "", each lesson's under
    its name. places: digest → where it lies on this machine. benchmarks: by name. absent: what a plan does without,
    with what a run would say of it.
    """

    profile: Profile
    models: dict[str, BaseModel]
    pools: dict[str, PoolInputs]
    encoder_sha256: str
    places: dict[str, Path]
    benchmarks: dict[str, PoolInputs] = field(default_factory=dict)
    grader: ActiveGrader = field(default_factory=ActiveGrader)
    reward: BaseModel | None = None  # the model that scores test-time searches
    labelled_sha256: str = field(default_factory=labelled_sha256)  # traces on which partitions are calibrated
    command: str = ""  # what asks for it
    adapters: Mapping[str, MadeElsewhere] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[str, ...]:
        """In what that its results depend on it differs from the profile that it is based on."""
        found = differences(self._base, self._anywhere)
        return tuple(f"{path}: {value_text(a)} → {value_text(b)}" for path, (a, b) in found.items())

    @property
    def in_numbers(self) -> str:
        """What it does, by its own numbers; words of its profile may be of another study."""
        p = self.profile
        steps, seeds = p.training.steps, len(p.seeds)
        trains = steps and seeds and p.heads(p.arms)
        of_seeds = f"{seeds} seed{'s' if seeds > 1 else ''}"
        return (
            f"{', '.join(p.arms)}: {f'{steps} steps of training under {of_seeds}' if trains else 'no training'};"
            f" {p.screening.group_size} rollouts a problem at screening, {p.final.group_size} in the final evaluation"
        )

    @property
    def settings(self) -> str:
        """A file of this study but for hardware and budget, which differ from place to place: manifests say them."""
        return written_out(self.profile, without=("hardware", "budget"))

    @property
    def _base(self) -> Profile:
        return PROFILES.get(self.profile.name, self.profile)

    @property
    def _anywhere(self) -> Profile:
        """On which hardware it was made is said by manifests: a report is the same wherever its study was."""
        return replace(self.profile, hardware=self._base.hardware, budget=self._base.budget)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Each arm's, with its tags and stop."""
        scaffolds = {name: self.profile.arm(name).scaffold for name in self.profile.arms}
        return tuple(
            f"{name} (tags {', '.join(s.pairs) or 'none'}; answer in its {s.answer_form}{_kind(s)};"
            f" stop {', '.join(map(_seen, s.stop)) or 'none'}{'; chat' if s.chat else ''}):\n{s.prompt('{problem}')}"
            for name, s in scaffolds.items()
        )

    @property
    def served(self) -> dict[str, int]:
        """Rank of the largest adapter that is served on each base model, by its digest; 0: none is."""
        return served_ranks(self.profile, self.models, self.ranks)

    @property
    def model_names(self) -> str:
        """Of one base its name; of several, what each arm stands on."""
        names = {arm: self._stands_on(arm) for arm in self.profile.arms}
        told = dict.fromkeys(names.values())
        return ", ".join(told if len(told) == 1 else (f"{arm} on {name}" for arm, name in names.items()))

    def _stands_on(self, arm: str) -> str:
        adapter = self.adapters.get(self.profile.arm(arm).head)
        return self.models[arm].name + (f" with {adapter.name}" if adapter else "")


def _seen(stop: str) -> str:
    return stop if stop.isprintable() else repr(stop)


def _kind(s: Scaffold) -> str:
    return "" if s.answer_kind == MATH else f", {s.answer_kind}"


def resolve(
    profile: Profile,
    store: Store,
    *,
    model: Path | None,
    encoder: Path | None,
    data: Path | None,
    pools: Sequence[Path] = (),
    planning: bool = False,
    prefix: Callable[[tuple[str, ...]], str] = lambda path: "",
) -> Study:
    """Find and name every input. store: whose grader is active, and which may have pools that an earlier one checked.
    prefix: what stands before a sentence about a field.

    planning: what does not lie here is named in `absent` and fetched by nobody; what hangs on it is to be made. A
    machine that makes no embeddings does without their encoder.
    Errors: UserError for whatever is missing or is not what it should be.
    """
    places: dict[str, Path] = {}
    absent: dict[str, str] = {}
    faults: list[str] = []

    def sought(
        look: Callable[[], T], path: tuple[str, ...] = (), way_out: str = "", *, spared: bool = planning
    ) -> T | None:
        try:
            return look()
        except UserError as error:
            if spared and isinstance(error, NotHere):
                absent[error.what] = f"{prefix(path)}{error}"
            else:
                faults.append(f"{prefix(path)}{error}{way_out}")
            return None

    kinds = profile.answer_kinds

    def inputs(
        wishes: Sequence[str | Path], at: tuple[str, ...], wanted: Pool, *, whole: bool = False, way_out: str = ""
    ) -> PoolInputs:
        specs = []
        for wish in wishes:
            look = partial(found_source, wish, data, store.root / "hub", fetch=not planning)
            found = sought(look, at, way_out)
            spec, path = found or (unfound(wish), None)
            specs.append(spec)
            places.update({spec.sha256: path} if path else {})
        limit = None if whole else wanted.limit
        seed = None if limit is None else wanted.split_seed
        policy = PoolPolicy(on_issue=wanted.on_issue, limit=limit, answer_kinds=kinds, draw_seed=seed)
        return PoolInputs(tuple(specs), as_first_checked(store, tuple(specs), policy))

    own = profile.pool
    wished = pools or own.sources
    if own.synthetic and own.limit and not wished:
        faults.append(
            f"{prefix(('pool', 'limit'))}{profile.called} makes its own problems, {own.synthetic} a source, of which"
            f" no {own.limit} are drawn; write pool.synthetic=N for another number, or name problems"
        )
    models = found_bases(profile, model, places, sought, fetch=not planning)
    refuse_other_bases(profile, models, sought)
    adapters, ranks = found_adapters(profile, models, places, sought, fetch=not planning)
    made_up = own.synthetic and not wished
    if made_up and (said := " and ".join(filter(None, (faults_of_answer(kind, "7") for kind in kinds)))):
        faults.append(
            f"{prefix(('pool', 'synthetic'))}made-up problems have whole numbers for answers, and {said}; name sources"
        )
    said = () if pools else ("pool", "sources")
    studied = PoolInputs() if made_up else inputs(wished, said, own)
    sought(lambda: refuse_one_name(wished), said)
    sought(lambda: refuse_undrawable(profile, studied.sources, places), ("pool", "heldout_per_source"))
    taught = [lesson for lesson in profile.lessons if set(lesson.arms) & set(profile.arms)]
    lessons = {x.name: inputs(x.pool.sources, ("lessons", x.name, "pool", "sources"), x.pool) for x in taught}
    way_out = "; a benchmark asks it, and --set benchmarks=[] leaves benchmarks out"
    benchmarks = {
        b.name: inputs(b.sources, ("benchmarks", b.name, "sources"), own, whole=True, way_out=way_out)
        for b in profile.benchmarks
    }
    encoder_name = profile.encoder.name
    embeds = profile.embeds and "embeddings" not in profile.hardware.without
    spared = planning or not (embeds or profile.trains_on_vectors)
    find_encoder = partial(encoder_folder, fetch=not spared)
    seek_encoder = partial(found_model, encoder_name, encoder, find_encoder, places)
    encoding = sought(seek_encoder, () if encoder else ("encoder", "name"), spared=spared) or unnamed(encoder_name)
    if encoding.sha256 in places:
        seen = partial(check_encoder_positions, encoder_name, places[encoding.sha256], profile.encoder.max_tokens)
        sought(seen, ("encoder", "max_tokens"))
    scorer = profile.search.reward
    reward = (
        (
            sought(partial(found_reward_model, scorer, places, fetch=not planning), ("search", "reward"))
            or unnamed(scorer)
        )
        if scorer
        else None
    )
    if faults:
        raise UserError("; ".join(dict.fromkeys([*faults, *absent.values()])))
    served = served_ranks(profile, models, ranks)
    bases = {places[sha256]: rank for sha256, rank in served.items() if sha256 in places}
    hardware = enough_gpus(profile.hardware, bases, num_gpus(), gpu_bytes())
    return Study(
        profile=replace(
            profile,
            encoder=replace(profile.encoder, name=called(encoder_name)),
            hardware=spread(hardware, num_gpus(), side_by_side(profile)),
        ),
        models=models,
        pools={"": studied, **lessons},
        encoder_sha256=encoding.sha256,
        places=places,
        benchmarks=benchmarks,
        grader=active_grader(store.root),
        reward=reward,
        adapters=adapters,
        ranks=ranks,
        absent=absent,
    )
