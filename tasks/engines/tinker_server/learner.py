"""The learner of the Tinker API: models that use one copy of the base in turn, losses, and Adam."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from storage.errors import UserError
from tasks.domain.grpo.credit import ObjectiveState
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import Tokens, clipped, importance_sampling, reinforce
from tasks.domain.grpo.packing import Pack
from tasks.engines.hardware import Execution, on_device
from tasks.engines.learning.policy import Policy
from tasks.engines.learning.update import Updater
from tasks.engines.tinker_server.checkpoints import Shape


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence of a batch. tokens_T: int64 input. targets_T: int64, the token that each position predicts. inputs:
    float32 arrays of T, by the names that the loss uses."""

    tokens_T: np.ndarray
    targets_T: np.ndarray
    inputs: Mapping[str, np.ndarray]


@dataclass(slots=True)
class Model:
    """A model in training. tensors: weights, summed gradient and Adam's state while the learner has another model;
    empty before the first turn. since: number of the first request that the server knows."""

    id: str
    shape: Shape
    tensors: dict[str, Tensor] = field(default_factory=dict)
    since: int = 0


def cispo(t: Tokens, low: float, high: float) -> Tensor:
    """Return the terms of CISPO, -sg(clip(ratio, low, high)) · A · log-prob, where sg stops the gradient."""
    ratio_T = (t.logprobs_T.detach() - t.behaviour_T).exp().clamp(low, high)
    return -ratio_T * t.advantages_T * t.logprobs_T


#: The terms of each loss, from tokens, the learner's config and the two limits of clipping.
TERMS: dict[str, Callable[[Tokens, LearnerConfig, float, float], Tensor]] = {
    "cross_entropy": lambda t, c, *_: reinforce(t, c),
    "importance_sampling": lambda t, c, *_: importance_sampling(t, c),
    "ppo": lambda t, c, low, high: clipped(t, replace(c, clip_low=1 - low, clip_high=high - 1)),
    "cispo": lambda t, _, low, high: cispo(t, low, high),
}


class Learner:
    """One copy of the base with LoRA of one shape, which one model after another uses."""

    def __init__(self, base: Path, rank: int, targets: tuple[str, ...], alpha: int, execution: Execution) -> None:
        numbers = {"steps": 1, "groups_per_step": 1, "group_size": 2, "learning_rate": 0.0}  # required, but not used
        self.config = LearnerConfig(**numbers, lora_rank=rank, lora_alpha=alpha, target_modules=targets)
        self.budget, self.policy = execution.token_budget, Policy(base, self.config, execution)
        self.updater = Updater(self.policy, self.config, self.budget)
        self.loaded: Model | None = None

    def show(self, model: Model) -> None:
        """Load a model's state into the learner, and keep the state of the model before."""
        if self.loaded is model:
            return
        if self.loaded is not None:
            state = self.updater.kept() | {"gradient": self.policy.lora.grad}
            self.loaded.tensors = {name: tensor.clone() for name, tensor in state.items()}
        self.loaded = model
        if not model.tensors:
            self.policy.lora.start(model.shape.seed)
        self.restore(model.tensors or {"weights": self.policy.lora.master})

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set weights, Adam's state and gradient. Initialise missing parts."""
        self.updater.optimiser.state.clear()
        gradient = tensors.get("gradient")
        self.policy.lora.grad.copy_(torch.zeros(()) if gradient is None else gradient)
        self.updater.restore({n: t.clone() for n, t in tensors.items() if n != "gradient"}, ObjectiveState())

    def losses(
        self, data: Sequence[Datum], loss: str, settings: Mapping[str, float], *, forward_only: bool
    ) -> tuple[list[np.ndarray], float]:
        """Return (log-probs_T of each sequence's targets, summed loss). Add the gradient unless `forward_only`."""
        if loss not in TERMS:
            raise UserError(f"this server has no loss {loss!r}: choose from {', '.join(TERMS)}")
        logprobs, total = list[np.ndarray](), 0.0
        for part in packs_of(data, self.budget):
            with torch.set_grad_enabled(not forward_only):
                logprobs_K, summed = self._pack(part, loss, settings)
            if not forward_only:
                summed.backward()
                self.policy.lora.collect()
            ends = np.cumsum([len(datum.tokens_T) for datum in part])[:-1]
            logprobs += np.split(logprobs_K.detach().cpu().numpy(), ends)
            total += float(summed.detach())
        return logprobs, total

    def _pack(self, data: Sequence[Datum], loss: str, settings: Mapping[str, float]) -> tuple[Tensor, Tensor]:
        pack = pack_of(data, *((None, "weights") if loss == "cross_entropy" else ("logprobs", "advantages")))
        logprobs_K, _ = self.policy.logprobs(pack)
        arrays = (pack.behaviour_K, pack.advantages_K, pack.rollout_K)
        tokens = Tokens(logprobs_K, *(on_device(array, self.policy.device) for array in arrays))
        clips = settings.get("clip_low_threshold", 0.8), settings.get("clip_high_threshold", 1.2)
        return logprobs_K, TERMS[loss](tokens, self.config, *clips).sum()

    def step(self, adam: Any) -> float:
        """Update the weights with the summed gradient, and return its norm. Raise UserError, and change nothing, if the
        gradient is not finite. adam: the SDK's AdamParams."""
        self.updater.optimiser.param_groups[0].update(
            betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay
        )
        norm, made = self.updater.step(adam.learning_rate, adam.grad_clip_norm or None)
        self.policy.lora.grad.zero_()
        if not made:
            raise UserError(f"the gradient has a norm of {norm:g}; it is dropped and the weights stay unchanged")
        return norm


def packs_of(data: Sequence[Datum], budget: int) -> list[list[Datum]]:
    """Divide a batch, in order, into packs of at most `budget` tokens. A longer sequence is a pack of its own."""
    packs, size = list[list[Datum]](), 0
    for datum in data:
        if not packs or size + len(datum.tokens_T) > budget:
            packs.append([])
            size = 0
        packs[-1].append(datum)
        size += len(datum.tokens_T)
    return packs


def pack_of(data: Sequence[Datum], behaviour: str | None, weight: str) -> Pack:
    """Return one pack in which every row predicts its target. behaviour: name of the input with the behaviour
    log-probs; None: they are 0. weight: name of the input with each token's weight or advantage."""
    lengths = [len(datum.tokens_T) for datum in data]
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    rows = np.arange(starts[-1], dtype=np.int64)
    for name in filter(None, (behaviour, weight)):
        if any(name not in datum.inputs for datum in data):
            raise UserError(f"a datum has no {name}, which this loss needs")

    def joined(name: str | None) -> np.ndarray:
        parts = [datum.inputs[name] if name else np.zeros(len(datum.tokens_T)) for datum in data]
        return np.concatenate(parts).astype(np.float32)

    return Pack(
        tokens_T=np.concatenate([datum.tokens_T for datum in data]),
        positions_T=np.concatenate([np.arange(length) for length in lengths]),
        starts_q=starts,
        starts_k=starts,
        key_rows=rows,
        rows_K=rows,
        targets_K=np.concatenate([datum.targets_T for datum in data]),
        behaviour_K=joined(behaviour),
        advantages_K=joined(weight),
        rollout_K=np.repeat(np.arange(len(data)), lengths),
    )
