"""The files of one training: its state, from which it resumes, and its adapters (served, kept for evaluations, final).

A checkpoint is a folder `step-NNNN`, written atomically: flat float32 vectors (weights, Adam's moments), and a JSON of
the position, the rows so far and the objective's state. A checkpoint has no random state, because the order of prompts
and the seeds depend only on (seed, step, problem).
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file
from torch import Tensor

from storage.artifacts.fingerprint import canonical
from storage.errors import UserError
from storage.roots import sync, sync_tree
from tasks.domain.grpo.credit import ObjectiveState
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.packing import PromptGroup
from tasks.domain.grpo.steps import PromptProblem, evaluated_steps
from tasks.domain.policies import AS_CRITIC, ServedAdapter
from tasks.engines.adapter_files import SERVED
from tasks.engines.model_files import weights_identity

#: Number of checkpoints that are kept.
KEPT = 2


@dataclass(frozen=True, slots=True)
class State:
    """The state after `step` optimiser updates. tensors: in host memory. recipe: hash of all inputs of the training.
    rows: rows so far, by table of `TrainResult`. objective: the objective's state. remote: path on the Tinker service
    that has the tensors."""

    step: int
    recipe: str
    tensors: Mapping[str, Tensor]
    rows: dict[str, list[dict[str, Any]]]
    objective: ObjectiveState = field(default_factory=ObjectiveState)
    remote: str = ""


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield a new folder. At the end it is flushed to disk and replaces `folder`, whole or not at all."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    yield beside
    sync_tree(beside)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    sync(folder.parent)


def save(root: Path, state: State) -> Path:
    """Write a checkpoint, and delete all but the KEPT newest. If a tensor is not finite, raise UserError instead."""
    if spoilt := sorted(name for name, tensor in state.tensors.items() if not tensor.isfinite().all()):
        raise UserError(
            f"{root}: after step {state.step} {', '.join(spoilt)} are not finite, so no checkpoint is written. The"
            " previous checkpoint is kept; lower learning_rate or set grad_clip"
        )
    position = {"step": state.step, "recipe": state.recipe, **state.rows, "objective": state.objective.as_json()}
    position |= {"remote": state.remote} if state.remote else {}
    with replacing(folder := root / f"step-{state.step:04d}") as beside:
        save_file(dict(state.tensors), beside / "state.safetensors")
        (beside / "state.json").write_text(json.dumps(position))
    for old in _kept(root)[:-KEPT]:
        shutil.rmtree(old)
    return folder


def latest(root: Path, recipe: str, former: str) -> State | None:
    """Return the newest checkpoint, or None. Raise UserError for a checkpoint of another recipe. former: hash of the
    recipe with the identity that earlier versions gave to weights (`former_identity`)."""
    for leftover in root.glob(".step-*"):
        shutil.rmtree(leftover)
    folders = _kept(root)
    if not folders:
        return None
    position = json.loads((folders[-1] / "state.json").read_text())
    if position["recipe"] not in (recipe, former):
        raise UserError(
            f"{folders[-1]} is a checkpoint of another recipe (other base model, problems or learner settings); give"
            " this training its own folder, or remove the checkpoint"
        )
    tensors = load_file(folders[-1] / "state.safetensors")
    rows = {name: position[name] for name in ("steps", "exposure", "diagnostics")}
    objective = ObjectiveState.from_json(position["objective"])
    return State(position["step"], recipe, tensors, rows, objective, position.get("remote", ""))


def _kept(root: Path) -> list[Path]:
    """Return complete checkpoints, oldest first, sorted by number, because names sort differently from step 10,000
    on."""
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
    """Return a hash of everything that the trained numbers depend on. identity: hash of the base's weights."""
    shape = hashlib.sha256((base / "config.json").read_bytes()).hexdigest()
    start = None if init is None else hashlib.sha256((init / "adapter_model.safetensors").read_bytes()).hexdigest()
    parts = [identity(base), shape, float(temperature), canonical(config), canonical(problems), start]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def evaluated(config: LearnerConfig, policy_step: int) -> bool:
    """Return whether the policy after this step is evaluated on held-out problems."""
    return policy_step in evaluated_steps(config.steps, config.eval_every)


@dataclass(slots=True)
class Adapters:
    """The adapters of a training.

    - name: the training's name, with which the name of every served adapter begins.
    - writes: whether this process writes; only one does.
    - stacked: a merging sampler reads one file per adapter, and kept adapters are written in PEFT format while the next
      step is sampled. Otherwise all adapters are written in PEFT format before sampling.
    - changing: a lock that is held while weights change, and while they score tokens.
    """

    policy: Any
    config: LearnerConfig
    workdir: Path
    name: str
    writes: bool
    stacked: bool = False
    _aside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="adapters"))
    _writing: Future[None] | None = None
    changing: Lock = field(default_factory=Lock)
    _recent: dict[int, tuple[Tensor | None, Tensor | None]] = field(default_factory=dict)

    def serve(self, step: int) -> None:
        """Export the weights after `step` under a new name, and delete folders that no step or evaluation needs."""
        if self.writes:
            self.written()
            folder = self.served(step).folder
            shutil.rmtree(folder, ignore_errors=True)
            self._write(step, folder)
            for old, of_it in self._served():
                if not self._next(old, step):
                    if evaluated(self.config, old):
                        self._drop_served(of_it)
                    else:
                        shutil.rmtree(of_it)
            self._remember(step)
        self._begin()

    def _write(self, step: int, folder: Path) -> None:
        """Write the current weights. Kept adapters have full precision, because other trainings can start from them.
        The learner rounds them, and samplers do it in the same way."""
        policy, kept = self.policy, evaluated(self.config, step)
        dtype = policy.lora.master.dtype if kept else policy.dtype
        if not self.stacked:
            policy.lora.export(folder, policy.base, dtype)
        else:
            policy.lora.hand_over(folder)
            if kept:
                self._writing = self._aside.submit(policy.lora.export, folder, policy.base, dtype)

    def _begin(self) -> None:
        self.policy.lora.experts.begin()

    def _remember(self, step: int) -> None:
        """Keep a copy of the current weights (and of the critic's), because with staleness later rollouts are still
        sampled from them. Without staleness keep None, because no weights change before these rollouts."""
        lora, stale = self.policy.lora, self.config.staleness > 0
        second = lora.second if lora.second is None or not stale else lora.second.clone()
        self._recent[step] = lora.work.clone() if stale else None, second
        for old in [old for old in self._recent if not self._next(old, step)]:
            del self._recent[old]

    def scorer(self, step: int) -> Any:
        """Return a function that scores tokens by the policy after `step` (tasks/engines/sampling/same_policy.py);
        None if a resumed training no longer has these weights."""
        return partial(self._score, step) if step in self._recent else None

    def _score(
        self, step: int, groups: Sequence[PromptGroup], temperature: float, *, base: bool = False, critic: bool = False
    ) -> np.ndarray:
        weights, second = self._recent[step]
        with self.changing:
            return self.policy.score(groups, temperature, second if critic else weights, base=base)

    def written(self) -> None:
        """Wait until the adapter is written. Until then, weights must not change and no later checkpoint may be
        written: after a kill, a resumed run would take a half-written file for an adapter."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        self._aside.shutdown(wait=True)

    def _next(self, old: int, step: int) -> bool:
        """Return whether the adapter of step `old` is still needed, because a step after `step` samples from it."""
        return step - self.config.staleness <= old <= step

    def stay(self, step: int) -> None:
        """Serve these weights for every later evaluation. No further update follows."""
        for later in (s for s in evaluated_steps(self.config.steps, self.config.eval_every) if s >= step):
            self.serve(later)

    def served(self, step: int) -> ServedAdapter:
        """Return the adapter after `step`. If the step was sampled before a crash, the adapter's folder may be missing,
        but then the step's rollouts are in the ledger."""
        return ServedAdapter(f"{self.name}-{step:04d}", self.workdir / "served" / f"step-{step:04d}")

    def critic(self, step: int) -> ServedAdapter | None:
        """Return the critic's adapter after `step`, in a folder inside the first adapter's; None without a critic."""
        served = self.served(step)
        two = self.policy.lora.second is not None
        return ServedAdapter(f"{served.name}-{AS_CRITIC}", served.folder / AS_CRITIC) if two else None

    def finish(self) -> list[Path]:
        """Return the folders of the evaluated adapters, in the order of steps."""
        self.written()
        kept = [folder for step, folder in self._served() if step and evaluated(self.config, step)]
        for folder in kept if self.writes else ():
            self._drop_served(folder)
        return kept

    def _drop_served(self, folder: Path) -> None:
        """Remove the merging sampler's file, so that only the adapter in PEFT format remains."""
        for one in (folder, folder / AS_CRITIC):
            (one / SERVED).unlink(missing_ok=True)

    def _served(self) -> list[tuple[int, Path]]:
        """Return (step, folder) of the adapters on disk, oldest first."""
        return sorted((int(f.name.removeprefix("step-")), f) for f in (self.workdir / "served").glob("step-*"))
