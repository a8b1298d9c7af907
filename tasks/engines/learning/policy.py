"""A policy that can be trained: frozen base, LoRA, packed forward pass, and log-probs of the target tokens.

The memory for log-probs does not grow with the vocabulary. The head is frozen, so the gradient of one token's log-prob
is one vector of the hidden size. The forward pass computes it chunk by chunk from the chunk's probabilities, and the
backward pass scales it. Float32 logits exist for one chunk at a time and are never computed twice.

After loading, the log-probs of a pack are compared with those of the model's own forward pass. A wrong attention, mask,
head or position shows there (`policy_check`).
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.packing import Pack, PromptGroup, Trajectory, build_pack
from tasks.engines.adapter_files import adapter_files
from tasks.engines.hardware import (
    Execution,
    Hardware,
    free_bytes,
    keep_freed_memory,
    on_device,
    quiet_libraries,
    release_memory,
    require_gpu,
    settle_threads,
)
from tasks.engines.learning import attention, parallel
from tasks.engines.learning.attention import ATTENTION_NAME
from tasks.engines.learning.lora import Lora, fuse
from tasks.engines.model_checks import (
    LOGPROB_CHUNK,
    check_host_memory,
    check_training_memory,
    checkpoint_bytes,
    execution_on,
    plan_training,
)
from tasks.engines.model_files import loaded, loaded_bytes, read_config, weight_files

#: For scoring: rows of a pack, and the largest share of the free memory of GPU and of host that the model may take.
SCORED_ROWS, ROOM, SHARE_OF_HOST = 1024, 0.9, 0.2


class Policy:
    """A base model with LoRA on one device. `lora` has the weights; `logprobs` is differentiable in their working
    copies. temperature: that of the sampler, whose softmax defines the trained policy."""

    def __init__(self, base: Path, config: LearnerConfig, execution: Execution, temperature: float = 1.0) -> None:
        quiet_libraries()
        settle_threads()
        attention.register()
        self.device = _device(execution.device)
        parallel.join(self.device.type)
        name = execution.dtype if execution.dtype != "auto" else "float32" if self.device.type == "cpu" else "bfloat16"
        self.dtype = getattr(torch, name)
        self.base, self.temperature = base, temperature
        self.of_entropy = bool(config.entropy_weight or config.entropy_target)
        gpu = self.device.type == "cuda"
        if gpu and execution.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
        if execution.merged and gpu:
            on_host = psutil.virtual_memory().available
            check_host_memory(base, on_host, self.dtype.itemsize, checkpoints=checkpoint_bytes(base, config))
        free = free_bytes(self.device, execution.memory_share)
        plan = check_training_memory(base, config, execution, self.dtype.itemsize, free)
        self.kept_rows, self.execution = plan.kept_rows, execution
        # load onto the device shard by shard, because a host copy of a 30B mixture takes 57 GiB
        onto, how = self.device if gpu else None, {"attn_implementation": ATTENTION_NAME}
        model: Any = loaded(AutoModelForCausalLM, base, self.dtype, onto, **how)
        model.to(self.device).requires_grad_(False).eval()
        check = policy_check(base.name, model, temperature, self.dtype.itemsize)
        self.lora = Lora(model, config, merge=execution.merged)
        self.body, self.head = model.model, model.lm_head.weight
        if self.device.type == "cuda":
            fuse(model)
        else:
            keep_freed_memory()
        self._layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if execution.checkpointing != "off":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        check(self.logprobs)
        if gpu and plan.largest > SCORED_ROWS:
            self.try_longest(plan.largest)
        release_memory()

    def try_longest(self, rows: int) -> None:
        """Run the longest pack forward and backward without side effects. If memory is too small, recompute the
        activations of all packs. Raise UserError if the pack does not fit even so."""
        # completions are at most as long as rollouts, because later positions may be computed differently
        each = max(1, (self.execution.longest or rows) - 1)
        sizes = [min(each, rows - 1 - begun) + 1 for begun in range(0, rows - 1, each)]
        ids = np.random.default_rng(0).integers(0, len(self.head), max(sizes)).tolist()
        completions = [Trajectory(i, ids[:n], np.zeros(n, np.float32), 0.0) for i, n in enumerate(sizes)]
        pack = build_pack([PromptGroup(ids[:1], completions)])
        fits = False
        with suppress(torch.OutOfMemoryError):
            self.logprobs(pack)[0].sum().backward()
            fits = True
        self.lora.collect()
        self.lora.grad.zero_()
        release_memory()
        if fits:
            return
        if not self.kept_rows or self.execution.checkpointing == "off":
            raise UserError(
                f"{self.base.name}: training ran out of memory with a pack of {rows} tokens, the longest possible;"
                " lower token_budget, max_model_len or the sampler's memory share, or take a larger GPU"
            )
        self.kept_rows = 0
        self.try_longest(rows)

    def score(
        self, groups: Sequence[PromptGroup], temperature: float, weights: Tensor | None = None, *, base: bool = False
    ) -> np.ndarray:
        """Return the log-probs of completion tokens with known behaviour log-probs, in one vector. weights: replace
        LoRA's current weights, in the form of `lora.work`. base: without an adapter."""
        torch.get_num_threads()  # without this call a new thread computes with all cores
        pack, other = build_pack(groups), torch.zeros_like(self.lora.work) if base else weights
        if other is None:  # with a gradient, so that updates can use the same compiled kernels
            return self.logprobs(pack, temperature)[0].detach().cpu().numpy()
        with torch.no_grad(), self.lora.with_weights(other):
            return self.logprobs(pack, temperature)[0].cpu().numpy()

    def logprobs(self, pack: Pack, temperature: float | None = None) -> tuple[Tensor, Tensor]:
        """Return (log-probs_K, entropy_K) of the predicted tokens, float32. temperature: the policy's if None."""
        self.lora.experts.finish()
        for layer in self._layers:
            # in training mode transformers recomputes the layer; submodules stay in eval mode, without dropout
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
        return token_logprobs(chosen, self.head, targets, LOGPROB_CHUNK, heat, self.of_entropy)


def scoring_policy(base: Path, adapter: Path | None, hardware: Hardware) -> Policy:
    """Load a policy for scoring only: onto the GPU if there is room next to the engine, otherwise into host memory.
    Raise UserError if there is no room in either, or if the learner cannot load this model or adapter."""
    settle_threads()
    if not weight_files(base) or read_config(base).get("quantization_config"):
        raise UserError(f"{base.name} is quantised, or its weights are not on this machine")
    found = None if adapter is None else adapter_files(adapter)
    config = LearnerConfig(
        steps=1,
        groups_per_step=1,
        group_size=2,
        learning_rate=0.0,
        lora_rank=found.rank if found else 1,
        lora_alpha=int(found.alpha) if found else 1,
        expert_rank=found.expert_rank if found else None,
        target_modules=found.targets if found else ("q_proj",),
    )
    execution = replace(
        execution_on(hardware, read_config(base)), token_budget=SCORED_ROWS, longest=0, processes=1, memory_share=1.0
    )
    gpu = hardware.device != "cpu" and torch.cuda.is_available()
    if gpu:
        room = free_bytes(torch.device("cuda"))
        gpu = plan_training(base, config, execution, 2, room).bytes <= ROOM * room
    if not gpu and loaded_bytes(base, 4) > (free := free_bytes(torch.device("cpu"))) * SHARE_OF_HOST:
        raise UserError(f"{base.name} in float32 takes more than a fifth of the {free / 2**30:.0f} GiB that are free")
    device = {"device": "cuda"} if gpu else {"device": "cpu", "merged": False}
    try:
        policy = Policy(base, config, replace(execution, **device))
    except torch.OutOfMemoryError as error:
        raise UserError(f"{base.name} does not fit beside the engine ({error})") from None
    if adapter is not None:
        policy.lora.load(adapter, base, whole=False)
    return policy


def _device(wanted: str) -> torch.device:
    if wanted.startswith("cuda"):
        require_gpu()
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    rank, world = parallel.rank_and_world()
    return torch.device("cuda", rank) if wanted == "cuda" and world > 1 else torch.device(wanted)


def _terms(
    logits: Tensor, targets: Tensor, dtype: torch.dtype, of_entropy: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return (log-probs, entropies, p - onehot, p (log p + entropy)), the last two in `dtype`. These two are
    −temperature times the derivatives of log-prob and entropy by the logits. The last may be None."""
    target = targets[:, None]
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    logprobs, p = log_p.gather(1, target), log_p.exp()
    entropies = -torch.linalg.vecdot(p, log_p)
    # p - 1 is computed before rounding, which would lose it where p is near 1
    slopes = torch.where(torch.arange(logits.shape[1], device=logits.device) == target, logprobs.expm1(), p)
    falls = (p * (log_p + entropies[:, None])).to(dtype) if of_entropy else None
    return logprobs[:, 0], entropies, slopes.to(dtype), falls


@cache
def _compiled_terms() -> Any:
    return torch.compile(_terms, dynamic=True)


class TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        targets_K: Tensor,
        chunk: int,
        temperature: float,
        of_entropy: bool,
    ) -> Any:
        logprobs_K = torch.empty(len(targets_K), dtype=torch.float32, device=hidden_KD.device)
        entropy_K = torch.empty_like(logprobs_K)
        slope_KD = torch.empty_like(hidden_KD) if ctx.needs_input_grad[0] else None
        fall_KD = torch.empty_like(hidden_KD) if ctx.needs_input_grad[0] and of_entropy else None
        terms = _compiled_terms() if hidden_KD.is_cuda else _terms
        for start in range(0, len(targets_K), chunk):
            part = slice(start, start + chunk)
            logits = _logits(hidden_KD[part], weight_VD)
            if temperature != 1:
                logits /= temperature
            logprobs_K[part], entropy_K[part], slopes, falls = terms(
                logits, targets_K[part], weight_VD.dtype, fall_KD is not None
            )
            if slope_KD is not None:
                torch.mm(slopes, weight_VD, out=slope_KD[part])
            if fall_KD is not None and falls is not None:
                torch.mm(falls, weight_VD, out=fall_KD[part])
            del logits, slopes, falls
        if fall_KD is None:
            ctx.mark_non_differentiable(entropy_K)
        ctx.save_for_backward(*(made for made in (slope_KD, fall_KD) if made is not None))
        ctx.temperature = temperature
        return logprobs_K, entropy_K

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        # gradients of the log-probs, and of the entropies if they have gradients
        parts = [
            falls_KD * (-grad_K / ctx.temperature)[:, None].to(falls_KD.dtype)
            for falls_KD, grad_K in zip(ctx.saved_tensors, grads, strict=False)
        ]
        return (sum(parts[1:], parts[0]), *[None] * 5)


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    if hidden.dtype == torch.float32:
        return hidden @ weight.T
    if hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return (hidden @ weight.T).float()


def token_logprobs(
    hidden_KD: Tensor,
    weight_VD: Tensor,
    targets_K: Tensor,
    chunk: int,
    temperature: float = 1.0,
    of_entropy: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (log-probs_K, entropy_K in nats), float32, of targets under softmax(hidden · weightᵀ / temperature). Only
    `hidden` gets a gradient. Entropies have one only with `of_entropy`."""
    return TokenLogprobs.apply(hidden_KD, weight_VD, targets_K, chunk, temperature, of_entropy)


# ---- the check that the learner computes the same model as transformers


#: A mean difference of log-probs at temperature 1 that is always accepted, by bytes of a weight.
LEAST = {8: 1e-3, 4: 1e-3, 2: 1e-2}
#: A larger difference is accepted up to this multiple of the difference between two attention implementations of the
#: model, which only rounding causes. In 500 models on a CPU it was 0.9 to 1.4 times that difference; attention scores
#: scaled by 0.9 give 3, and by 0.5 give 14. Fused GPU kernels round at other places, so the limit is higher than 1.4.
ROUNDED = 4
#: Number of tokens of two prompts, and of their completions.
_PROMPTS, _COMPLETIONS = (13, 5), (17, 8, 1)


def probe(vocabulary: int) -> list[PromptGroup]:
    """Return groups of random tokens: two prompts in one pack, each with completions of several lengths.

    >>> [len(group.trajectories) for group in probe(640)]
    [3, 3]
    """
    rng = np.random.default_rng(0)
    completions = [rng.integers(0, vocabulary, size).tolist() for _ in _PROMPTS for size in _COMPLETIONS]
    trajectories = [Trajectory(i, ids, np.zeros(len(ids), np.float32), 0.0) for i, ids in enumerate(completions)]
    parts = np.array_split(np.arange(len(trajectories)), len(_PROMPTS))
    return [
        PromptGroup(rng.integers(0, vocabulary, size).tolist(), [trajectories[i] for i in part])
        for size, part in zip(_PROMPTS, parts, strict=True)
    ]


LogprobsOf = Callable[[Pack], tuple[Tensor, Tensor]]


def policy_check(name: str, model: Any, temperature: float, itemsize: int) -> Callable[[LogprobsOf], None]:
    """Return a function that compares the learner's log-probs of a probe with those of the unmodified model, which are
    computed here, each rollout on its own. The function raises UserError if the log-probs of an untrained policy differ
    by more than rounding. itemsize: bytes of a weight."""
    groups = probe(model.get_input_embeddings().num_embeddings)
    model.set_attn_implementation("eager")
    plain = other = _logprobs(model, groups, temperature)
    with suppress(ValueError):  # the model may have only one attention implementation
        model.set_attn_implementation("sdpa")
        other = _logprobs(model, groups, temperature)
    model.set_attn_implementation(ATTENTION_NAME)
    most = max(LEAST[itemsize] / min(1.0, temperature), ROUNDED * float((other - plain).abs().mean()))

    def check(logprobs: LogprobsOf) -> None:
        # kernels compiled here would be specialised to this pack's few rows
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            learned, _ = logprobs(build_pack(groups))
        apart = float((learned - plain).abs().mean())
        if not apart <= most:
            raise UserError(
                f"{name}: the learner's log-probs differ by {apart:.3g} from those of the model's own forward pass, and"
                f" rounding explains at most {most:.2g}. The learner computes this model differently, so it would train"
                " another policy than the sampled one. Evaluate the model untrained, or use another model"
            )

    return check


def _logprobs(model: Any, groups: Sequence[PromptGroup], temperature: float) -> Tensor:
    found = []
    with torch.no_grad():
        for group in groups:
            for one in group.trajectories:
                ids = torch.tensor([*group.prompt_ids, *one.token_ids], device=model.device)
                logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0].float() / temperature
                first, targets = len(group.prompt_ids) - 1, ids[len(group.prompt_ids) :]
                found.append(logits[first:].log_softmax(-1).gather(1, targets[:, None])[:, 0])
    return torch.cat(found)
