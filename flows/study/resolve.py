"""From a profile and the user's wishes to exactly what will run: overrides applied, files and models found and named
by content. Everything that can be wrong with the input is found here, before work starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from flows.study.files import HIDDEN, changed_study
from flows.study.models import digest_of, encoder_folder, found_model, found_reward_model, model_folder
from flows.study.profiles import BENCHMARKS
from flows.study.questions import PROFILES
from flows.study.reading import Reading, Typed
from flows.study.shape import Profile
from flows.study.writing import differences, told, written_out
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.active_grader import active_grader
from tasks.domain.grading.overrides import ActiveGrader
from tasks.domain.policies import BaseModel
from tasks.domain.problems.problems import PoolPolicy
from tasks.domain.problems.sources import SourceSpec, source_spec
from tasks.engines.encoding.labelled import labelled_sha256
from tasks.engines.learning.memory_plan import check_positions
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
    command: str = ""  # what asks for it

    @property
    def changes(self) -> tuple[str, ...]:
        """In what that its results depend on it differs from the profile that it is based on."""
        found = differences(self._base, self._anywhere)
        return tuple(f"{path}: {told(a)} → {told(b)}" for path, (a, b) in found.items())

    @property
    def settings(self) -> str:
        return written_out(self._anywhere)

    @property
    def _base(self) -> Profile:
        return PROFILES.get(self.profile.name, self.profile)

    @property
    def _anywhere(self) -> Profile:
        """On which hardware it was made is said by manifests: a report is the same wherever its study was."""
        return replace(self.profile, hardware=self._base.hardware)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Each arm's, with its tags and stop."""
        scaffolds = {name: self.profile.arm(name).scaffold for name in self.profile.arms}
        return tuple(
            f"{name} (tags {', '.join(s.pairs) or 'none'}; answer in its {s.answer_form}; stop"
            f" {', '.join(s.stop) or 'none'}{'; chat' if s.chat else ''}):\n{s.prompt('{problem}')}"
            for name, s in scaffolds.items()
        )

    @property
    def model_names(self) -> str:
        return ", ".join(dict.fromkeys(model.name for model in self.models.values()))


def overridden(profile: Profile, settings: Sequence[str]) -> Profile:
    """Apply `path.to.field=value` settings; what has a name is chosen by it, `benchmarks=[]` means none.
    Errors: UserError naming every field that is unknown or not what it may be.

    >>> from flows.study.profiles import DEMO
    >>> overridden(DEMO, ["screening.group_size=16"]).screening.group_size
    16
    >>> overridden(DEMO, ["screening.adaptive=true"]).screening.adaptive
    True
    """
    asked: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write field=value, for example training.learning_rate=1e-3")
        *above, name = path.strip().split(".")
        inner = asked
        for word in above:
            inner = inner.setdefault(word, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {path}: '{word}' has no fields of its own")
        inner[name] = Typed(text.strip())
    reading = Reading(known={"benchmarks": BENCHMARKS}, hidden=HIDDEN)
    return changed_study(asked, profile, reading) or refuse(reading, settings)


def refuse(reading: Reading, settings: Sequence[str]) -> NoReturn:
    """Errors: UserError with everything that was found wrong; `--set` stands before what it set."""
    paths = {setting.partition("=")[0].strip() for setting in settings}
    said = (f"--set {one}" if ".".join(one.path) in paths else one.said for one in reading.faults)
    raise UserError("; ".join(dict.fromkeys(said)))


def setting_names(record: Any, within: str = "") -> Iterator[str]:
    """Every field that a setting may name, as a path; lessons are records of their own and are chosen by profile.

    >>> from flows.study.profiles import DEMO
    >>> [name for name in setting_names(DEMO) if name.startswith("passk.")]
    ['passk.ks', 'passk.draws', 'passk.seed']
    """
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        if dataclasses.is_dataclass(value):
            yield from setting_names(value, f"{within}{one.name}.")
        elif within or one.name not in (*HIDDEN[Profile], "lessons"):
            yield f"{within}{one.name}"


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
    missing: list[str] = []

    def sought(look: Callable[[], T], otherwise: T, way_out: str = "") -> T:
        try:
            return look()
        except UserError as error:
            missing.append(f"{error}{way_out}")
            return otherwise

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
    base = sought(lambda: _base(profile, model, places), BaseModel(sha256=""))
    made_up = own.synthetic and not wished
    studied = PoolInputs() if made_up else sought(lambda: inputs(wished, own.on_issue, own.limit), PoolInputs())
    taught = [lesson for lesson in profile.lessons if set(lesson.arms) & set(profile.arms)]
    lessons = {
        x.name: sought(lambda x=x: inputs(x.pool.sources, x.pool.on_issue, x.pool.limit), PoolInputs()) for x in taught
    }
    way_out = "; a benchmark asks it, and --set benchmarks=[] leaves benchmarks out"
    benchmarks = {
        b.name: sought(lambda b=b: inputs(b.sources, own.on_issue), PoolInputs(), way_out) for b in profile.benchmarks
    }
    encoder_name = profile.encoder.name
    encoding = sought(lambda: found_model(encoder_name, encoder, encoder_folder, places), BaseModel(sha256=""))
    scorer = profile.search.reward
    reward = sought(lambda: found_reward_model(scorer, places), None) if scorer else None
    if missing:
        raise UserError("; ".join(dict.fromkeys(missing)))
    profile = dataclasses.replace(profile, encoder=dataclasses.replace(profile.encoder, name=Path(encoder_name).name))
    models = {name: base for arm in profile.arms for name in (arm, profile.arm(arm).trained_as)}
    grader, built = active_grader(store.root), {"": studied, **lessons}
    return Study(profile, models, built, encoding.sha256, places, benchmarks, grader, encoding.formerly, reward)


def _base(profile: Profile, wish: Path | None, places: dict[str, Path]) -> BaseModel:
    name = profile.model if wish is None or digest_of(wish) else wish.name
    base = found_model(name, wish, model_folder, places)
    if base.sha256 in places and profile.hardware.engine != "openai":
        check_positions(places[base.sha256], profile.hardware.max_model_len)
    return base


def _sources(wishes: Sequence[str | Path], data: Path | None, places: dict[str, Path]) -> tuple[SourceSpec, ...]:
    specs = []
    for wish in wishes:
        spec, path = source_spec(wish, data)
        specs.append(spec)
        places[spec.sha256] = path
    return tuple(specs)
