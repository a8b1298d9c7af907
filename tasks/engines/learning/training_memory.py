"""What a training takes of its device, of host memory and of the disk, known before its model is read."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import EXPERT_PROJECTIONS, LearnerConfig
from tasks.domain.grpo.steps import evaluated_steps
from tasks.engines.learning.memory_plan import (
    GIB,
    head_sizes,
    inner_size,
    lora_parameters,
    merged_copies,
    num_experts,
    read_config,
    size,
)
from tasks.engines.stored_weights import loaded_bytes

if TYPE_CHECKING:
    from tasks.engines.learning.policy import Execution

#: Adapters of a training on the disk that no evaluation keeps: of the steps under way, and the one being written.
_SERVED = 3
#: Rows that no pack has.
UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """bytes: of the device at the peak. kept_rows: of the largest pack whose activations are kept for the backward
    pass; the layers of a larger one are recomputed. largest: rows of the largest pack that may come."""

    bytes: int
    kept_rows: int
    largest: int


def activation_bytes(
    config: dict[str, Any], targets: Sequence[str], bytes_per_value: int, *, recompute: bool, fused: bool = False
) -> int:
    """Kept for the backward pass per row of a pack. Counted per layer: 10 vectors as wide as the hidden state, 4 as the
    queries (keys and values are repeated to their number of heads) and 4 as the MLP's inner width. fused: 6, 2 and 2,
    and 4 vectors of keys. Of a mixture, instead of the MLP, for each expert of a token 2 inner ones with LoRA, 3 and a
    hidden one without it; and while one layer is computed 4 of both. Recomputing: one layer's worth and a hidden state
    per layer."""
    hidden, inner = size(config, "hidden_size"), inner_size(config)
    heads, head, kv_heads = head_sizes(config)
    around = 6 * hidden + (2 * heads + 4 * kv_heads) * head if fused else 10 * hidden + 4 * heads * head
    mlp, passing = (2 if fused else 4) * inner, 0
    if num_experts(config):
        each = size(config, "num_experts_per_tok")
        mlp = each * (2 * inner if {*targets} & {*EXPERT_PROJECTIONS} else 3 * inner + hidden)
        passing = each * 4 * (inner + hidden) * bytes_per_value
    layer, layers = (around + mlp) * bytes_per_value, size(config, "num_hidden_layers")
    return passing + (layer + layers * hidden * bytes_per_value if recompute else layer * layers)


def fixed_bytes(base: Path, learner: LearnerConfig, execution: Execution, bytes_per_value: int) -> int:
    """What a learner takes of its device whatever a pack holds."""
    config = read_config(base)
    lora = lora_parameters(config, learner.lora_rank, learner.target_modules, learner.expert_rank)
    fixed = loaded_bytes(base, bytes_per_value) + lora * (16 + 2 * bytes_per_value)
    if "agents" in ADVANTAGES[learner.advantage].needs:
        fixed += lora * 12  # the critic's masters and moments
    if learner.kl_weight:
        fixed += lora * 2 * bytes_per_value  # the weights that KL is measured to, and those of now while it is
    fixed += merged_copies(config) * bytes_per_value if execution.merged else 0
    return fixed + execution.logprob_chunk * size(config, "vocab_size") * (8 + bytes_per_value)


def plan_training(
    base: Path,
    learner: LearnerConfig,
    execution: Execution,
    bytes_per_value: int,
    free: int | None,
    *,
    gpu: bool = False,
) -> TrainingPlan:
    """free: bytes of the device; null: not known, and planned for packs of the budget. gpu: its kernels are fused where
    adapters are merged, and around experts."""
    config, targets = read_config(base), learner.target_modules
    fused = gpu and (execution.merged or num_experts(config) > 0)
    kept, recomputed = (
        activation_bytes(config, targets, bytes_per_value, recompute=r, fused=fused) for r in (False, True)
    )
    fixed, largest, fitting = fixed_bytes(base, learner, execution, bytes_per_value), execution.token_budget, UNBOUNDED
    if free is not None:
        largest = max(largest, execution.longest)
        fitting = max(0, int((0.9 * free - fixed) // kept))
    rows = {"on": 0, "off": UNBOUNDED, "auto": fitting}[execution.checkpointing]
    packs = max(min(rows, largest) * kept, largest * recomputed if largest > rows else 0)
    return TrainingPlan(fixed + packs, rows, largest)


def plan_memory(
    base: Path, learner: LearnerConfig, execution: Execution, bytes_per_value: int, free: int, *, gpu: bool = False
) -> int:
    """Rows of the largest pack whose activations are kept. free, gpu: as above.

    Errors: UserError if training does not fit.
    """
    plan = plan_training(base, learner, execution, bytes_per_value, free, gpu=gpu)
    if plan.bytes > 0.95 * free:
        less = "token_budget" if plan.largest == execution.token_budget else "token_budget, max_model_len"
        raise UserError(
            f"{base.name}: training needs about {plan.bytes / GIB:.1f} GiB with packs of {plan.largest} tokens and"
            f" {free / GIB:.1f} GiB are free; lower {less} or the sampler's memory share, or take a larger GPU"
        )
    return plan.kept_rows


def checkpoint_bytes(base: Path, learner: LearnerConfig) -> int:
    """Of host memory while a checkpoint is written: float32 weights and Adam's two moments of all that is trained."""
    return 12 * _trained(base, learner)


def disk_bytes(base: Path, learner: LearnerConfig, execution: Execution) -> int:
    """Of a training's work folder at most: checkpoints, one of them on its way, and adapters in float32."""
    adapters = len(evaluated_steps(learner.steps, learner.eval_every)) + _SERVED
    checkpoints = (execution.keep_checkpoints + 1) * checkpoint_bytes(base, learner)
    return checkpoints + 4 * adapters * _trained(base, learner)


def kept_bytes(base: Path, learner: LearnerConfig) -> int:
    """Of the disk for good: the adapters of its evaluated steps but the first, in float32."""
    return 4 * (len(evaluated_steps(learner.steps, learner.eval_every)) - 1) * _trained(base, learner)


def readable(number: float) -> str:
    """
    >>> readable(3.2 * GIB), readable(70_000), readable(5)
    ('3.2 GiB', '68.4 KiB', '0.0 KiB')
    """
    unit, name = next((u for u in ((GIB, "GiB"), (1 << 20, "MiB")) if number >= u[0]), (1 << 10, "KiB"))
    return f"{number / unit:.1f} {name}"


def check_disk(workdir: Path, base: Path, learner: LearnerConfig, execution: Execution) -> None:
    """workdir: of the training; what it holds is written over. Errors: UserError where it cannot grow to its size."""
    workdir.mkdir(parents=True, exist_ok=True)
    held = sum(file.stat().st_size for file in workdir.rglob("*") if file.is_file())
    needed, room = disk_bytes(base, learner, execution), held + shutil.disk_usage(workdir).free
    if needed > room:
        raise UserError(
            f"{workdir}: a training of {base.name} keeps up to {readable(needed)} of checkpoints and adapters on"
            f" its way, and there is room for {readable(room)}; make room, or keep fewer adapters (training.eval_every)"
        )


def _trained(base: Path, learner: LearnerConfig) -> int:
    """Values; a critic has as many."""
    lora = lora_parameters(read_config(base), learner.lora_rank, learner.target_modules, learner.expert_rank)
    return lora * (2 if "agents" in ADVANTAGES[learner.advantage].needs else 1)
