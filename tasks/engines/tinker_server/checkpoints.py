"""Checkpoints of the Tinker server on disk: `<model id>/<kind>/<name>/`, each with a shape.json, whole or not there.

weights: state to resume from; sampler_weights and external_weights: adapters in PEFT format.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.errors import UserError
from storage.roots import sync, sync_tree

PREFIX = "tinker://"
KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
SHAPE = "shape.json"


class Missing(UserError):
    """A session, model, request or checkpoint that this server does not have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The description of a model in training, without its weights. targets: its adapted layers."""

    base_model: str
    rank: int
    targets: tuple[str, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    folder: Path
    shape: Shape

    @property
    def path(self) -> str:
        return PREFIX + "/".join(self.folder.parts[-3:])

    @property
    def time(self) -> str:
        """Return the time at which the checkpoint was saved, in ISO format."""
        return datetime.fromtimestamp((self.folder / SHAPE).stat().st_mtime, UTC).isoformat()


def folder_of(root: Path, path: str) -> Path:
    """Return the folder of a tinker:// path, whether there or not. Raise UserError if the path has another form."""
    parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or len(parts) != 3 or parts[1] not in KINDS:
        raise UserError(f"{path!r} is not tinker://MODEL/KIND/NAME with a KIND of {', '.join(KINDS)}")
    if any(not part or part.startswith(".") for part in parts):
        raise UserError(f"{path!r} has a part that is empty or begins with a dot")
    return root.joinpath(*parts)


def there(root: Path, path: str) -> bool:
    return (folder_of(root, path) / SHAPE).is_file()


def find(root: Path, path: str) -> Checkpoint:
    """Return the checkpoint of a tinker:// path. Errors: Missing."""
    folder = folder_of(root, path)
    if not there(root, path):
        raise Missing(f"there is no checkpoint {path}")
    given = json.loads((folder / SHAPE).read_text())
    return Checkpoint(folder, Shape(**{**given, "targets": tuple(given["targets"])}))


@contextmanager
def writing(root: Path, path: str, shape: Shape, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a checkpoint into the yielded folder. Raise UserError if the name is taken."""
    folder = folder_of(root, path)
    if there(root, path) and not overwrite:
        raise UserError(f"checkpoint {path} is there already; choose another name, or overwrite it")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    yield beside
    (beside / SHAPE).write_text(json.dumps(asdict(shape)))
    sync_tree(beside)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    sync(folder.parent)


def listed(root: Path, model_id: str) -> list[Checkpoint]:
    """Return a model's checkpoints, newest first."""
    found = (find(root, PREFIX + "/".join(file.parts[-4:-1])) for file in root.glob(f"{model_id}/*/[!.]*/{SHAPE}"))
    return sorted(found, key=lambda one: one.time, reverse=True)
