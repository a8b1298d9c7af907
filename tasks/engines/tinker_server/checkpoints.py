"""Checkpoints of the Tinker server on disk: `<model id>/<kind>/<name>/`, each with an about.json, whole or not there.

weights: state to resume from; sampler_weights and external_weights: adapters in PEFT format.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.errors import UserError
from storage.roots import sync, sync_tree

PREFIX = "tinker://"
KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
ABOUT = "about.json"


class Missing(UserError):
    """A session, model, request or checkpoint that this server does not have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model in training is, beside its weights. targets: its adapted layers."""

    base_model: str
    rank: int
    targets: tuple[str, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint. time, expires_at: in ISO format; expires_at: None to keep it."""

    folder: Path
    shape: Shape
    time: str
    expires_at: str | None

    @property
    def path(self) -> str:
        return PREFIX + "/".join(self.folder.parts[-3:])


def folder_of(root: Path, path: str) -> Path:
    """Return the folder of a tinker:// path, whether there or not. Errors: UserError for any other path."""
    parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or len(parts) != 3 or parts[1] not in KINDS:
        raise UserError(f"{path!r} is not tinker://MODEL/KIND/NAME with a KIND of {', '.join(KINDS)}")
    if any(not part or part.startswith(".") for part in parts):
        raise UserError(f"{path!r} has a part that is empty or begins with a dot")
    return root.joinpath(*parts)


def find(root: Path, path: str) -> Checkpoint:
    """Return the checkpoint of a tinker:// path. Errors: Missing."""
    folder = folder_of(root, path)
    if not (folder / ABOUT).is_file():
        raise Missing(f"there is no checkpoint {path}")
    about = json.loads((folder / ABOUT).read_text())
    shape = Shape(**{**about["shape"], "targets": tuple(about["shape"]["targets"])})
    return Checkpoint(folder, shape, about["time"], about["expires_at"])


@contextmanager
def writing(root: Path, path: str, shape: Shape, ttl: int | None, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a checkpoint into the yielded folder. ttl: seconds. Errors: UserError for a name that is taken."""
    folder, now = folder_of(root, path), datetime.now(UTC)
    if (folder / ABOUT).is_file() and not overwrite:
        raise UserError(f"checkpoint {path} is there already; choose another name, or overwrite it")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    yield beside
    expires = None if ttl is None else (now + timedelta(seconds=ttl)).isoformat()
    (beside / ABOUT).write_text(json.dumps({"shape": asdict(shape), "time": now.isoformat(), "expires_at": expires}))
    sync_tree(beside)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    sync(folder.parent)


def listed(root: Path, model_id: str = "*") -> list[Checkpoint]:
    """Return checkpoints, newest first, and delete expired ones."""
    found = root.glob(f"{model_id}/*/[!.]*/{ABOUT}")
    checkpoints = [find(root, PREFIX + "/".join(about.parts[-4:-1])) for about in found]
    now = datetime.now(UTC).isoformat()
    for one in (one for one in checkpoints if (one.expires_at or now) < now):
        shutil.rmtree(one.folder)
    return sorted((one for one in checkpoints if one.folder.is_dir()), key=lambda one: one.time, reverse=True)
