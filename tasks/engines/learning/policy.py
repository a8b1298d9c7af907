"""A policy that can be trained: frozen base, LoRA, packed forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.packing import Pack, PromptGroup, build_pack
from tasks.engines.adapter_files import adapter_files
from tasks.engines.environment import quiet_libraries, settle_threads
from tasks.engines.hardware import Hardware, engine_name, free_bytes, keep_freed_memory, on_device
from tasks.engines.learning import attention, parallel
from tasks.engines.learning.fusion import fuse
from tasks.engines.learning.logprobs import token_logprobs
from tasks.engines.learning.lora import Lora
from tasks.engines.learning.memory_plan import check_host_memory, num_experts, read_config
from tasks.engines.learning.merging import merges_adapters
from tasks.engines.learning.own_forward import own_forward, refuse_otherwise
from tasks.engines.learning.training_memory import UNBOUNDED, checkpoint_bytes, plan_memory, plan_training
from tasks.engines.loading import loaded
from tasks.engines.model_files import weight_files
from tasks.engines.stored_weights import loaded_bytes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Rows of a pack that is only scored, and the shares of a GPU's and of the host's free memory that its model may take.
SCORED_ROWS, ROOM, SHARE_OF_HOST = 1024, 0.9, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where and how training runs. Changes no result beyond rounding, and is part of no fingerprint.

    dtype: of the frozen base and of the working copies of LoRA; `auto` is float32 on the CPU, bfloat16 on a GPU.
    token_budget: rows of one pack. logprob_chunk: predicted tokens whose logits exist at once.
    longest: rows of the longest rollout with its prompt, which a pack may have to hold; 0: not known.
    checkpointing: recompute layers in the backward pass: `auto` does for packs whose activations would not fit.
    async_checkpoints: write them while the next step runs; a crash then repeats up to two updates, not one.
    processes: of the learner, one a GPU; they share each step's packs.
    merged: the forward pass is of the weights that a merging sampler serves, so that both are one policy.
    flat_adapters: a step's adapter is handed over as one block, which a merging sampler of this machine maps.
    memory_share: of a GPU; the rest is the sampler's, whether or not its engine has taken it yet.
    """

    device: str = "auto"
    dtype: str = "auto"
    token_budget: int = 8192
    longest: int = 0
    logprob_chunk: int = 2048
    checkpointing: Literal["auto", "on", "off"] = "auto"
    checkpoint_every: int = 1
    keep_checkpoints: int = 2
    async_checkpoints: bool = False
    processes: int = 1
    merged: bool = False
    flat_adapters: bool = False
    memory_share: float = 1.0


def execution_on(hardware: Hardware, config: dict[str, Any]) -> Execution:
    """config: of the base model."""
    merges = hardware.device == "cuda" and merges_adapters(config, hardware)
    return Execution(
        device=hardware.device,
        token_budget=hardware.token_budget,
        longest=hardware.max_model_len,
        checkpointing=hardware.checkpointing,
        checkpoint_every=hardware.checkpoint_every,
        async_checkpoints=hardware.device == "cuda",
        processes=hardware.processes,
        merged=merges,
        flat_adapters=merges and num_experts(config) > 0 and engine_name(hardware.engine) == "vllm",
        memory_share=hardware.learner_share,
    )


class Policy:
    """base + LoRA on one device. `lora` holds the weights; `logprobs` is differentiable in its working copies.

    temperature: that of the sampler, whose softmax is the policy that is trained.
    """

    def __init__(self, base: Path, config: LearnerConfig, execution: Execution, temperature: float = 1.0) -> None:
        quiet_libraries()
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.modeling_layers import GradientCheckpointingLayer

        settle_threads()
        attention.register()
        self.device = _device(execution.device)
        parallel.join(self.device.type)
        name = execution.dtype if execution.dtype != "auto" else "float32" if self.device.type == "cpu" else "bfloat16"
        self.dtype = getattr(torch, name)
        self.chunk = execution.logprob_chunk
        self.base, self.temperature = base, temperature
        self.of_entropy = bool(config.entropy_weight or config.entropy_target)
        gpu = self.device.type == "cuda"
        if execution.merged and gpu:
            on_host = psutil.virtual_memory().available
            check_host_memory(base, on_host, self.dtype.itemsize, checkpoints=checkpoint_bytes(base, config))
        free = free_bytes(self.device, execution.memory_share)
        self.kept_rows = plan_memory(base, config, execution, self.dtype.itemsize, free, gpu=gpu)
        # onto the device shard by shard: a copy in host memory first would be one of 57 GiB for a 30B mixture
        onto, how = self.device if gpu else None, {"attn_implementation": attention.ATTENTION_NAME}
        model: Any = loaded(AutoModelForCausalLM, base, self.dtype, onto, **how)
        model.to(self.device).requires_grad_(False).eval()
        own = own_forward(model, temperature)
        self.lora = Lora(
            model,
            rank=config.lora_rank,
            expert_rank=config.expert_rank,
            alpha=config.lora_alpha,
            targets=config.target_modules,
            seed=config.seed,
            merge=execution.merged,
        )
        self.body, self.head = model.model, model.lm_head.weight
        if self.device.type == "cuda":
            fuse(model)
        else:
            keep_freed_memory()
        self._layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if self.kept_rows < UNBOUNDED:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        refuse_otherwise(base.name, own, self.logprobs, self.dtype.itemsize)

    def score(
        self, groups: Sequence[PromptGroup], temperature: float, weights: Tensor | None = None, *, base: bool = False
    ) -> np.ndarray:
        """Return the log-probs of the completions' tokens whose behaviour is known, end to end.

        weights: other ones than LoRA has now, like `lora.work`. base: without any adapter.
        """
        import torch

        torch.get_num_threads()  # otherwise a new thread computes with as many as there are cores
        pack, shown = build_pack(groups), torch.zeros_like(self.lora.work) if base else weights
        if shown is None:  # with a gradient, as in an update: what is compiled here serves that too
            return self.logprobs(pack, temperature)[0].detach().cpu().numpy()
        with torch.no_grad(), self.lora.showing(shown):
            return self.logprobs(pack, temperature)[0].cpu().numpy()

    def logprobs(self, pack: Pack, temperature: float | None = None) -> tuple[Tensor, Tensor]:
        """(log-probs_K, entropy_K) of the pack's predicted tokens, float32. temperature: None: the policy's own."""
        self.lora.experts.finish()
        for layer in self._layers:
            # transformers recomputes a layer that is in training; what is in it is not, and drops nothing out
            layer.training = len(pack.tokens_T) > self.kept_rows
        tokens, positions, rows, targets = (
            on_device(a, self.device) for a in (pack.tokens_T, pack.positions_T, pack.rows_K, pack.targets_K)
        )
        hidden = self.body(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            layout=attention.layout(pack, self.device),
        ).last_hidden_state[0]
        chosen = hidden.index_select(0, rows)
        heat = self.temperature if temperature is None else temperature
        return token_logprobs(chosen, self.head, targets, self.chunk, heat, self.of_entropy)


def scoring_policy(base: Path, adapter: Path | None, hardware: Hardware) -> Policy:
    """Load a policy that is only to score: onto the GPU if it has room beside the engine, otherwise into host memory.

    Errors: UserError where neither has room, or where the learner cannot load this model or adapter.
    """
    import torch

    settle_threads()
    if not weight_files(base) or read_config(base).get("quantization_config"):
        raise UserError(f"{base.name} is quantised, or its weights are not on this machine")
    lora: dict[str, Any] = {"lora_rank": 1, "lora_alpha": 1, "target_modules": ("q_proj",)}
    if adapter is not None:
        found = adapter_files(adapter)
        lora = {"lora_rank": found.rank, "lora_alpha": int(found.alpha), "expert_rank": found.expert_rank}
        lora["target_modules"] = tuple(sorted(found.targets))
    config = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=0.0, **lora)
    execution = replace(
        execution_on(hardware, read_config(base)), token_budget=SCORED_ROWS, longest=0, processes=1, memory_share=1.0
    )
    gpu = hardware.device != "cpu" and torch.cuda.is_available()
    if gpu:
        room = free_bytes(torch.device("cuda"))
        gpu = plan_training(base, config, execution, 2, room, gpu=True).bytes <= ROOM * room
    if not gpu and loaded_bytes(base, 4) > (free := free_bytes(torch.device("cpu"))) * SHARE_OF_HOST:
        raise UserError(f"{base.name} in float32 takes more than a fifth of the {free / 2**30:.0f} GiB that are free")
    device = {"device": "cuda"} if gpu else {"device": "cpu", "merged": False}
    try:
        policy = Policy(base, config, replace(execution, **device))
    except torch.OutOfMemoryError as error:
        raise UserError(f"{base.name} does not fit beside the engine ({error})") from None
    if adapter is not None:
        policy.lora.load(adapter, base)
    return policy


def _device(wanted: str) -> torch.device:
    import torch

    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"learner: the profile wants device {wanted} and this machine has no NVIDIA GPU")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    rank, world = parallel.rank_and_world()
    return torch.device("cuda", rank) if wanted == "cuda" and world > 1 else torch.device(wanted)
