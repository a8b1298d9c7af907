"""From a profile and the user's wishes to exactly what will run: overrides applied, files and models found and named
by content. Everything that can be wrong with the input is found here, before work starts."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.study.models import digest_of, encoder_folder, found_model, found_reward_model, model_folder
from flows.study.otherwise import alike
from flows.study.profiles import BENCHMARKS, Profile
from flows.study.questions import PROFILES
from storage.artifacts.ref import KINDS
from storage.artifacts.store import Store
from storage.errors import UserError, did_you_mean
from tasks.active_grader import active_grader
from tasks.domain.arms import ARMS
from tasks.domain.grading.overrides import ActiveGrader
from tasks.domain.grpo.behaviour import check_overlong, check_sampling
from tasks.domain.grpo.losses import loss_for, refuse_unread
from tasks.domain.policies import BaseModel
from tasks.domain.problems.problems import PoolPolicy
from tasks.domain.problems.sources import SourceSpec, source_spec
from tasks.engines.encoding.labelled import labelled_sha256
from tasks.engines.hardware import ENGINES
from tasks.engines.learning.memory_plan import check_positions
from tasks.pool import as_first_checked


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """The files that a pool is built from, none for problems of the project's own making, and how they are checked."""

    sources: tuple[SourceSpec, ...] = ()
    policy: PoolPolicy = field(default_factory=PoolPolicy)


@dataclass(frozen=True, slots=True)
class Study:
    """A profile whose inputs were found. Pinned here, so that the DAG looks nothing up: grader, whose verdicts its
    tables are made from, and the policy of every pool.

    models: of each arm, and of the arm whose adapter it is evaluated with. pools: the profile's own under "", each
    lesson's under its name. places: digest → where it lies on this machine. benchmarks: by name.
    """

    profile: Profile
    models: dict[str, BaseModel]
    pools: dict[str, PoolInputs]
    encoder_sha256: str
    places: dict[str, Path]
    benchmarks: dict[str, PoolInputs] = field(default_factory=dict)
    grader: ActiveGrader = field(default_factory=ActiveGrader)
    encoder_formerly: str = ""  # what the encoder was called when other files of its folder counted
    reward: BaseModel | None = None  # the model that scores test-time searches
    labelled_sha256: str = field(default_factory=labelled_sha256)  # traces on which partitions are calibrated

    @property
    def model_names(self) -> str:
        return ", ".join(dict.fromkeys(model.name for model in self.models.values()))


def profile_named(name: str) -> Profile:
    try:
        return PROFILES[name]
    except KeyError:
        hint = did_you_mean(name, PROFILES)
        raise UserError(f"unknown profile '{name}'{hint} (known: {', '.join(PROFILES)})") from None


def overridden(profile: Profile, settings: Sequence[str]) -> Profile:
    """Apply `path.to.field=value` settings; benchmarks and objectives are chosen by name, `benchmarks=[]` means none.
    Errors: UserError naming the field that is unknown or of another type.

    >>> overridden(PROFILES["demo"], ["screening.group_size=16"]).screening.group_size
    16
    >>> overridden(PROFILES["demo"], ["screening.adaptive=true"]).screening.adaptive
    True
    """
    asked = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write field=value, for example training.learning_rate=1e-3")
        asked.append((path.strip().split("."), text.strip(), path.strip()))
    before, profile = profile.training, _replaced(profile, asked)
    for training in (profile.training, *(lesson.training for lesson in profile.lessons)):
        loss_for(training)
    profile = dataclasses.replace(profile, objectives=alike(profile.objectives, before, profile.training))
    trainings = (profile.training, *(one.training for one in profile.objectives))
    refuse_unread((name for (head, *rest), *_ in asked for name in rest[:1] if head == "training"), trainings)
    if strange := [kind for kind in profile.hardware.without if kind not in KINDS]:
        hint = did_you_mean(strange[0], KINDS)
        raise UserError(f"hardware.without: no kind '{strange[0]}'{hint} (known: {', '.join(sorted(KINDS))})")
    if (engine := profile.hardware.engine) not in ENGINES:
        raise UserError(f"--set hardware.engine: unknown engine '{engine}' (known: {', '.join(ENGINES)})")
    unknown = [arm for arm in profile.arms if arm not in ARMS]
    if unknown or not profile.arms:
        raise UserError(f"unknown arm '{', '.join(unknown)}' (known: {', '.join(ARMS)})")
    profile.search.refuse_impossible(profile.final.sampling.max_tokens, profile.arms)
    for what, given in (("arms", profile.arms), ("seeds", profile.seeds)):
        if twice := [str(one) for one in dict.fromkeys(given) if given.count(one) > 1]:
            raise UserError(f"{what}: {', '.join(twice)} stands there more than once, and would be counted so")
    return profile


def setting_names(record: Any, within: str = "") -> Iterator[str]:
    """Every field that a setting may name, as a path; lessons are records of their own and are chosen by profile.

    >>> [name for name in setting_names(PROFILES["demo"]) if name.startswith("passk.")]
    ['passk.ks', 'passk.draws', 'passk.seed']
    """
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        if dataclasses.is_dataclass(value):
            yield from setting_names(value, f"{within}{one.name}.")
        elif within or one.name not in ("name", "purpose", "lessons"):
            yield f"{within}{one.name}"


def _replaced(record: Any, asked: Sequence[tuple[list[str], str, str]]) -> Any:
    """asked: path from here, value, whole path. A record is made once, so what goes together is said in any order."""
    names, changes = [f.name for f in dataclasses.fields(record)], {}
    inner: dict[str, list[tuple[list[str], str, str]]] = {}
    for (name, *rest), text, whole in asked:
        if name not in names:
            hint = did_you_mean(name, names)
            raise UserError(f"--set {whole}: no field '{name}'{hint} (fields here: {', '.join(names)})")
        old = getattr(record, name)
        if rest and not dataclasses.is_dataclass(getattr(record, name)):
            raise UserError(f"--set {whole}: '{name}' has no fields of its own")
        if rest:
            inner.setdefault(name, []).append((rest, text, whole))
        else:
            known = {"benchmarks": BENCHMARKS, "objectives": ()}
            changes[name] = _named(old, known[whole], text, whole) if whole in known else _read_as(old, text, whole)
    changes |= {name: _replaced(getattr(record, name), more) for name, more in inner.items()}
    try:
        return dataclasses.replace(record, **changes)
    except UserError as error:
        paths = [whole for (name, *_), _, whole in asked if re.search(rf"\b{name}\b", str(error))]
        raise UserError(f"--set {paths[0]}: {error}" if paths else str(error)) from None


def _named(old: tuple[Any, ...], known: Sequence[Any], text: str, whole: str) -> tuple[Any, ...]:
    """The named ones, benchmarks or objectives: as the profile has them, else as they are known."""
    by_name = {one.name: one for one in (*known, *old)}
    names = [name.strip() for name in text.strip("[]()").split(",") if name.strip()]
    if unknown := [name for name in names if name not in by_name]:
        what = whole.removesuffix("s")
        raise UserError(f"--set {whole}: unknown {what} '{unknown[0]}' (known: {', '.join(by_name) or 'none'})")
    return tuple(by_name[name] for name in dict.fromkeys(names))


def _read_as(old: object, text: str, whole: str) -> object:
    """The value of a setting, of the type that the field has now."""
    if isinstance(old, str):
        return text
    if isinstance(old, tuple) and (not old or isinstance(old[0], str)):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        value = ast.literal_eval(text.capitalize() if isinstance(old, bool) else text)
    except (ValueError, SyntaxError):
        raise UserError(f"--set {whole}: '{text}' cannot be read; now it is {old!r}") from None
    if isinstance(old, tuple):
        value = tuple(value) if isinstance(value, list | tuple) else (value,)
    if isinstance(old, bool) != isinstance(value, bool) and old is not None:
        raise UserError(f"--set {whole}: '{text}' is not of the type of {old!r}")
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if old is not None and value is not None and not isinstance(value, type(old)):
        raise UserError(f"--set {whole}: '{text}' is not of the type of {old!r}")
    return value


def resolve(
    profile: Profile,
    store: Store,
    *,
    model: Path | None,
    encoder: Path | None,
    data: Path | None,
    pools: Sequence[Path] = (),
) -> Study:
    """Find and name every input. store: whose grader is active, and which may have pools that an earlier one checked.

    Errors: UserError for whatever is missing or is not what it should be.
    """
    places: dict[str, Path] = {}
    name = profile.model if model is None or digest_of(model) else model.name
    base = found_model(name, model, model_folder, places)
    if base.sha256 in places and profile.hardware.engine != "openai":
        check_positions(places[base.sha256], profile.hardware.max_model_len)

    def inputs(wishes: Sequence[str | Path], on_issue: str, limit: int | None = None) -> PoolInputs:
        specs = _sources(wishes, data, places)
        return PoolInputs(specs, as_first_checked(store, specs, PoolPolicy(on_issue=on_issue, limit=limit)))

    own = profile.pool
    wished = pools or own.sources
    if own.synthetic and own.limit and not wished:
        raise UserError(
            f"--limit {own.limit}: {profile.name} makes its own problems, {own.synthetic} a source; write --set"
            " pool.synthetic=N for another number, or name problems with --pool"
        )
    studied = inputs(wished, own.on_issue, own.limit) if wished or not own.synthetic else PoolInputs()
    lessons: dict[str, PoolInputs] = {}
    if profile.training.steps:
        check_sampling(profile.rollouts)
        for training in (profile.training, *(objective.training for objective in profile.objectives)):
            check_overlong(training, profile.rollouts)
    for lesson in profile.lessons:
        if set(lesson.arms) & set(profile.arms):
            check_sampling(lesson.rollouts)
            check_overlong(lesson.training, lesson.rollouts)
            lessons[lesson.name] = inputs(lesson.pool.sources, lesson.pool.on_issue, lesson.pool.limit)
    try:
        benchmarks = {b.name: inputs(b.sources, own.on_issue) for b in profile.benchmarks}
    except UserError as error:
        raise UserError(f"{error}; a benchmark asks it, and --set benchmarks=[] leaves benchmarks out") from None
    encoding = found_model(profile.encoder.name, encoder, encoder_folder, places)
    models = {name: base for arm in profile.arms for name in (arm, ARMS[arm].trained_as)}
    reward = found_reward_model(profile.search.reward, places) if profile.search.reward else None
    grader, built = active_grader(store.root), {"": studied, **lessons}
    return Study(profile, models, built, encoding.sha256, places, benchmarks, grader, encoding.formerly, reward)


def _sources(wishes: Sequence[str | Path], data: Path | None, places: dict[str, Path]) -> tuple[SourceSpec, ...]:
    specs = []
    for wish in wishes:
        spec, path = source_spec(wish, data)
        specs.append(spec)
        places[spec.sha256] = path
    return tuple(specs)
