"""A policy that can be trained: frozen base, LoRA, packed forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from storage.errors import UserError
from tasks.domain.grpo import LearnerConfig
from tasks.domain.packing import Pack
from tasks.engines import attention
from tasks.engines.logprobs import token_logprobs
from tasks.engines.lora import Lora
from tasks.engines.quiet import quiet_libraries

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where and how training runs. Changes no result beyond rounding, and is part of no fingerprint.

    dtype: of the frozen base and of the working copies of LoRA; `auto` is float32 on the CPU, bfloat16 on a GPU.
    token_budget: rows of one pack. logprob_chunk: predicted tokens whose logits exist at once.
    checkpointing: recompute layers in the backward pass: `auto` does where a pack's activations would not fit.
    """

    device: str = "auto"
    dtype: str = "auto"
    token_budget: int = 8192
    logprob_chunk: int = 2048
    checkpointing: Literal["auto", "on", "off"] = "auto"
    checkpoint_every: int = 1
    keep_checkpoints: int = 2
    async_checkpoints: bool = False


class Policy:
    """base + LoRA on one device. `lora` holds the weights; `logprobs` is differentiable in its working copies."""

    def __init__(self, base: Path, config: LearnerConfig, execution: Execution) -> None:
        quiet_libraries()
        import torch
        from transformers import AutoModelForCausalLM

        attention.register()
        self.device = _device(execution.device)
        name = execution.dtype if execution.dtype != "auto" else "float32" if self.device.type == "cpu" else "bfloat16"
        self.dtype = getattr(torch, name)
        self.chunk = execution.logprob_chunk
        self.base = base
        model: Any = AutoModelForCausalLM.from_pretrained(
            base, dtype=self.dtype, attn_implementation=attention.ATTENTION_NAME, use_safetensors=True
        ).to(self.device)
        model.requires_grad_(False).eval()
        self.lora = Lora(model, rank=config.lora_rank, alpha=config.lora_alpha, targets=config.target_modules,
                         seed=config.seed)  # fmt: skip
        self.body, self.head = model.model, model.lm_head.weight
        if execution.checkpointing == "on":
            model.train()
            model.gradient_checkpointing_enable({"use_reentrant": False})

    def logprobs(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """(log-probs_K, entropy_K) of the pack's predicted tokens, float32."""
        import torch

        tokens, positions, rows, targets = (
            torch.from_numpy(a).to(self.device) for a in (pack.tokens_T, pack.positions_T, pack.rows_K, pack.targets_K)
        )
        hidden = self.body(
            input_ids=tokens[None], position_ids=positions[None], use_cache=False,
            layout=attention.layout(pack, self.device),
        ).last_hidden_state[0]  # fmt: skip
        return token_logprobs(hidden.index_select(0, rows), self.head, targets, self.chunk)


def _device(wanted: str) -> torch.device:
    import torch

    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"learner: the profile wants device {wanted} and this machine has no NVIDIA GPU")
    return torch.device(wanted)
