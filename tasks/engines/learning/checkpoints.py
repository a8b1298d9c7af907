"""Resumable trainer state on disk, written atomically.

A checkpoint is a folder `step-NNNN` with the flat float32 vectors (weights, Adam's moments) and a JSON of position,
rows so far and the objective's state. A checkpoint has no random state: prompt order and seeds are functions of (seed,
step, problem).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from storage.artifacts.fingerprint import canonical
from storage.errors import UserError
from storage.roots import sync
from tasks.domain.grpo.credit import ObjectiveState
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem
from tasks.engines.model_files import weights_identity


@dataclass(frozen=True, slots=True)
class State:
    """The state after `step` optimiser updates. tensors: in host memory. recipe: hash of all inputs of the training.
    steps, exposure, diagnostics: rows so far. objective: the objective's state. remote: path of the state on a Tinker
    service, which then has the tensors."""

    step: int
    recipe: str
    tensors: Mapping[str, Tensor]
    steps: list[dict[str, Any]]
    exposure: list[dict[str, Any]]
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    objective: ObjectiveState = field(default_factory=ObjectiveState)
    remote: str = ""


def save(root: Path, state: State, keep: int) -> Path:
    """Write a checkpoint atomically, then delete all but the `keep` newest. Errors: UserError if a tensor is not
    finite; older checkpoints stay."""
    if spoilt := sorted(name for name, tensor in state.tensors.items() if not tensor.isfinite().all()):
        raise UserError(
            f"{root}: after step {state.step} {', '.join(spoilt)} are not finite, so no checkpoint is written; the one"
            " before it is kept: lower learning_rate or set grad_clip"
        )
    root.mkdir(parents=True, exist_ok=True)
    folder, beside = root / f"step-{state.step:04d}", root / f".step-{state.step:04d}.{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    save_file(dict(state.tensors), beside / "state.safetensors")
    rows = {"steps": state.steps, "exposure": state.exposure, "diagnostics": state.diagnostics}
    position = {"step": state.step, "recipe": state.recipe, **rows, "objective": state.objective.as_json()}
    position |= {"remote": state.remote} if state.remote else {}
    (beside / "state.json").write_text(json.dumps(position))
    for path in (beside / "state.safetensors", beside / "state.json", beside):
        sync(path)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    sync(root)
    for old in _kept(root)[:-keep]:
        shutil.rmtree(old)
    return folder


def latest(root: Path, recipe: str, former: str) -> State | None:
    """Return the newest checkpoint, or None. former: the recipe's hash with the identity that earlier versions gave to
    weights (`former_identity`). Raise UserError if the checkpoint belongs to another recipe."""
    for leftover in root.glob(".step-*"):
        shutil.rmtree(leftover)
    folders = _kept(root)
    if not folders:
        return None
    position = json.loads((folders[-1] / "state.json").read_text())
    if position["recipe"] not in (recipe, former):
        raise UserError(
            f"{folders[-1]} is a checkpoint of another recipe (other base model, problems or learner settings);"
            " give this training a folder of its own or remove that one"
        )
    tensors = load_file(folders[-1] / "state.safetensors")
    rows = position["steps"], position["exposure"], position["diagnostics"]
    objective = ObjectiveState.from_json(position["objective"])
    return State(position["step"], recipe, tensors, *rows, objective, position.get("remote", ""))


def _kept(root: Path) -> list[Path]:
    """Return complete checkpoints, oldest first. They are sorted by number, because names sort differently from step
    10,000 on."""
    whole = [p for p in root.glob("step-*") if (p / "state.json").is_file()]
    return sorted(whole, key=lambda p: int(p.name.removeprefix("step-")))


def recipe_hash(
    base: Path,
    problems: Sequence[PromptProblem],
    config: LearnerConfig,
    init: Path | None,
    temperature: float,
    identity: Callable[[Path], str] = weights_identity,
) -> str:
    """Return a digest of everything that the trained numbers depend on. identity: digest of the base's weights."""
    shape = hashlib.sha256((base / "config.json").read_bytes()).hexdigest()
    start = None if init is None else hashlib.sha256((init / "adapter_model.safetensors").read_bytes()).hexdigest()
    parts = [identity(base), shape, float(temperature), canonical(config), canonical(problems), start]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
