"""Resolve a profile: find its files and models, identify them by their content, and report missing and invalid ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flows.study.files import differences, value_text, written_out
from flows.study.machine import enough_gpus, served_ranks, side_by_side, spread
from flows.study.models import Finder, called, check_adapted, found_adapters, found_bases, found_judges, on_hub
from flows.study.profile import Pool, Profile
from flows.study.profiles import PROFILES
from flows.study.reading import Written
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.policies import BaseModel, MadeElsewhere
from tasks.domain.problems.problems import PoolPolicy
from tasks.domain.problems.sources import SourceSpec, source_spec
from tasks.domain.scaffolds import MATH
from tasks.engines.encoding import labelled_sha256
from tasks.engines.hardware import gpu_bytes, num_gpus, quiet_libraries
from tasks.engines.problem_files import fetch_source, parse_hub_name
from tasks.grading import active_grader
from tasks.pool import as_first_checked


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """The files that a pool is built from (none for synthetic problems), and how they are checked."""

    sources: tuple[SourceSpec, ...] = ()
    policy: PoolPolicy = field(default_factory=PoolPolicy)


@dataclass(frozen=True, slots=True)
class Study:
    """A profile with all inputs found. The grader and the policy of every pool are fixed here for the whole run.

    - models: base models by arm, also of arms whose adapters other arms use.
    - adapters: existing ones, by the arm that starts from one. ranks: the largest LoRA rank by model.
    - pools: the profile's own under "", each lesson's under its name. benchmarks: by name.
    - places: hash → location on this machine.
    - absent: inputs that are missing here, each with the error that a run would raise.
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
    command: str = ""  # the command that requests the study
    registered: str = ""  # a sentence: whether it was registered before sampling
    earlier_looks: tuple[str, ...] = ()  # earlier reports on the same question
    beside: tuple[str, ...] = ()  # `VALUE REPORT` for each other value of its matrix
    adapters: Mapping[str, MadeElsewhere] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[str, ...]:
        """Return fields that affect results and differ from the base profile. Manifests record the hardware."""
        base = PROFILES.get(self.profile.name, self.profile)
        anywhere = replace(self.profile, hardware=base.hardware, budget=base.budget, tracking=base.tracking)
        return tuple(
            f"{path}: {value_text(a)} → {value_text(b)}" for path, (a, b) in differences(base, anywhere).items()
        )

    @property
    def in_numbers(self) -> str:
        """Return a description of the study by its own numbers, because the purpose of its base profile may not fit."""
        p = self.profile
        steps, seeds = p.training.steps, len(p.seeds)
        trains = steps and seeds and p.heads(p.arms)
        training = (
            f"{steps} steps of training under {seeds} seed{'s' if seeds > 1 else ''}" if trains else "no training"
        )
        borrowed = [f"{arm} with the adapter of {head}" for arm, head in p.borrowed.items() if trains]
        trained = ", ".join(arm for arm in p.arms if not borrowed or arm not in p.borrowed)
        return (
            f"{'; '.join(filter(None, [f'{trained}: {training}' if trained else training, *borrowed]))};"
            f" {p.screening.group_size} rollouts a problem at screening, {p.final.group_size} in the final evaluation"
        )

    @property
    def settings(self) -> str:
        """Return the study as a file, without hardware, budget and tracking, which vary between machines."""
        return written_out(self.profile, without=("hardware", "budget", "tracking"))

    @property
    def prompts(self) -> tuple[str, ...]:
        """Return each arm's prompt, with its tags and stop strings."""
        scaffolds = {name: self.profile.arm(name).scaffold for name in self.profile.arms}
        return tuple(
            f"{name} (tags {', '.join(s.pairs) or 'none'}; answer in its {s.answer_form}"
            f"{'' if s.answer_kind == MATH else f', {s.answer_kind}'};"
            f" stop {', '.join(t if t.isprintable() else repr(t) for t in s.stop) or 'none'}"
            f"{'; chat' if s.chat else ''}):\n{s.prompt_text('{problem}')}"
            for name, s in scaffolds.items()
        )

    @property
    def on_server(self) -> tuple[str, ...]:
        """Return the arms whose model only a server has."""
        return tuple(name for name in self.profile.arms if self.models[name].served)

    @property
    def served(self) -> dict[str, int]:
        """Return the largest rank of the adapters served on each base model, by its hash; 0 if none is."""
        return served_ranks(self.profile, self.models, self.ranks)

    @property
    def model_names(self) -> str:
        """Return the name of the base model; if arms have different ones, each arm with its model."""
        names = {arm: self.models[arm].name for arm in self.profile.arms}
        for arm in names:
            if adapter := self.adapters.get(self.profile.arm(arm).head):
                names[arm] += f" with {adapter.name}"
        one = len({*names.values()}) == 1
        return next(iter(names.values())) if one else ", ".join(f"{arm} on {name}" for arm, name in names.items())


def found_source(wish: str, data: Path | None, folder: Path, *, fetch: bool = True) -> tuple[SourceSpec, Path]:
    """Return the source of a file or a known set, as source_spec does, or of a set on the hub (`NAME@COMMIT`,
    `OWNER/NAME@COMMIT`). Raise UserError or NotHere. folder: for downloaded problems. fetch: download missing ones."""
    if not on_hub(wish):
        return source_spec(wish, data)
    quiet_libraries()
    return fetch_source(*parse_hub_name(wish), folder, fetch=fetch)


def resolve(
    profile: Profile,
    store: Store,
    *,
    data: Path | None = None,
    encoder: str | None = None,
    planning: bool = False,
    written: Written = Written(),  # noqa: B008
) -> Study:
    """Find and identify every input. Raise UserError for missing or invalid inputs.

    store: for the active grader, and for pools that an earlier grader checked. encoder: folder, hub id or hash, if it
    differs from the profile's. planning: list missing inputs in `absent` and download nothing; steps that need them
    count as not made. A machine that makes no embeddings needs no encoder. written: where the settings are written.
    """
    finder = Finder(not planning)
    kinds = profile.answer_kinds

    def inputs(wanted: Pool, sources: tuple[str, ...], *path: str, whole: bool = False) -> PoolInputs:
        specs: list[SourceSpec] = []
        for wish in sources:
            # of a source that is not on this machine, only the name is known
            spec = SourceSpec(Path(wish.partition("@")[0]).name, f"not here: {wish}")
            with finder.looking(*path):
                spec, place = found_source(wish, data, store.root / "hub", fetch=finder.fetch)
                finder.places[spec.sha256] = place
                if spec.name in [one.name for one in specs]:
                    raise UserError(f"several files are called {spec.name} and would be one source; rename all but one")
            specs.append(spec)
        limit = None if whole else wanted.limit
        seed = None if limit is None else wanted.split_seed
        policy = PoolPolicy(on_issue=wanted.on_issue, limit=limit, answer_kinds=kinds, draw_seed=seed)
        return PoolInputs(tuple(specs), as_first_checked(store, tuple(specs), policy))

    profile = found_judges(profile, finder)
    models = found_bases(profile, finder)
    check_adapted(profile, models, finder)
    adapters, ranks = found_adapters(profile, models, finder)
    own = profile.pool
    pools = {"": inputs(own, own.sources, "pool", "sources") if own.sources else PoolInputs()}
    for lesson in profile.lessons:
        if set(lesson.arms) & set(profile.arms):
            path = ("lessons", lesson.name, "pool", "sources")
            pools[lesson.name] = inputs(lesson.pool, lesson.pool.sources, *path)
    benchmarks = {
        b.name: inputs(own, b.sources, "benchmarks", b.name, "sources", whole=True) for b in profile.benchmarks
    }
    encoder_name, embeds = profile.encoder.name, profile.embeds and "embeddings" not in profile.hardware.without
    path, spared = () if encoder else ("encoder", "name"), not (embeds or profile.trains_on_vectors)
    encoding = finder.model(encoder or encoder_name, "encoder", *path, spared=spared)
    wanted = profile.search.reward
    reward = finder.model(wanted, "reward model", "search", "reward") if wanted else None
    if finder.faults:
        written.refuse([*finder.faults, *finder.absent.values()])
    served = served_ranks(profile, models, ranks)
    bases = {finder.places[sha256]: rank for sha256, rank in served.items() if sha256 in finder.places}
    hardware = enough_gpus(profile.hardware, bases, num_gpus(), gpu_bytes())
    return Study(
        profile=replace(
            profile,
            encoder=replace(profile.encoder, name=called(encoder_name)),
            hardware=spread(hardware, num_gpus(), side_by_side(profile)),
        ),
        models=models,
        pools=pools,
        encoder_sha256=encoding.sha256,
        places=finder.places,
        benchmarks=benchmarks,
        grader=active_grader(store.root),
        reward=reward,
        adapters=adapters,
        ranks=ranks,
        absent={what: written.sentence(fault) for what, fault in finder.absent.items()},
    )
