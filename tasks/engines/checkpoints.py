"""Resumable trainer state on disk: whole or not there.

A checkpoint is a folder `step-NNNN` with the flat float32 vectors (weights, Adam's moments) and a JSON of position and
rows so far. There is no random state to keep: prompt order and seeds are functions of (seed, step, problem).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class State:
    """After `step` optimiser updates. recipe: hash of all that the numbers depend on. steps, exposure: rows so far."""

    step: int
    recipe: str
    tensors: Mapping[str, Tensor]
    steps: list[dict[str, Any]]
    exposure: list[dict[str, Any]]


def save(root: Path, state: State, keep: int) -> Path:
    """Write beside, flush, rename; then drop all but the `keep` newest."""
    from safetensors.torch import save_file

    root.mkdir(parents=True, exist_ok=True)
    folder, beside = root / f"step-{state.step:04d}", root / f".step-{state.step:04d}.{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    save_file(dict(state.tensors), beside / "state.safetensors")
    position = {"step": state.step, "recipe": state.recipe, "steps": state.steps, "exposure": state.exposure}
    (beside / "state.json").write_text(json.dumps(position))
    for path in (beside / "state.safetensors", beside / "state.json", beside):
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    flush(root)
    for old in _kept(root)[:-keep]:
        shutil.rmtree(old)
    return folder


def latest(root: Path, recipe: str) -> State | None:
    """The newest checkpoint, or none. Errors: UserError if it belongs to another recipe."""
    from safetensors.torch import load_file

    for leftover in root.glob(".step-*"):
        shutil.rmtree(leftover)
    folders = _kept(root)
    if not folders:
        return None
    position = json.loads((folders[-1] / "state.json").read_text())
    if position["recipe"] != recipe:
        raise UserError(
            f"{folders[-1]}: a checkpoint of another recipe (other base model, problems or learner settings);"
            " give this training a folder of its own or remove that one"
        )
    tensors = load_file(folders[-1] / "state.safetensors")
    return State(position["step"], recipe, tensors, position["steps"], position["exposure"])


def _kept(root: Path) -> list[Path]:
    return sorted(p for p in root.glob("step-*") if (p / "state.json").is_file())


def flush(path: Path) -> None:
    """fsync of a file or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
