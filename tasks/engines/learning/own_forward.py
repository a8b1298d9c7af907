"""Checks that the learner computes the same model as transformers: by model type before sampling, by measurement after
loading.

The learner computes attention and the output head without extras such as soft caps. The list of model types contains
those that were tested. For any model the log-probs of a pack are compared with those of the model's own forward pass,
which reveals another attention, mask, head or position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from storage.errors import UserError
from tasks.domain.grpo.packing import Pack, PromptGroup, Trajectory, build_pack
from tasks.engines.learning.attention import ATTENTION_NAME

#: Mean difference of log-probs at temperature 1 that is always accepted, by bytes of a weight.
LEAST = {8: 1e-3, 4: 1e-3, 2: 1e-2}
#: A larger difference may be this many times that of two attention implementations of the model, which comes from
#: rounding alone: measured 0.9 to 1.4 in 500 models on a CPU. Attention scores scaled by 0.9 give 3, by 0.5 give 14.
#: Fused GPU kernels round at other places, hence the margin.
ROUNDED = 4
#: Tokens of two prompts, and of their completions.
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


@dataclass(frozen=True, slots=True)
class OwnForward:
    """Log-probs of a probe's tokens by the model's own code, concatenated. apart: mean difference between two attention
    implementations of the model."""

    groups: Sequence[PromptGroup]
    logprobs: Tensor
    apart: float
    temperature: float


def own_forward(model: Any, temperature: float) -> OwnForward:
    """Return the log-probs of a probe by the unmodified model, each rollout separately."""
    groups = probe(model.get_input_embeddings().num_embeddings)
    model.set_attn_implementation("eager")
    plain = other = _logprobs(model, groups, temperature)
    with suppress(ValueError):  # a model with only one attention implementation
        model.set_attn_implementation("sdpa")
        other = _logprobs(model, groups, temperature)
    model.set_attn_implementation(ATTENTION_NAME)
    return OwnForward(groups, plain, float((other - plain).abs().mean()), temperature)


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


def check_same_policy(
    name: str, own: OwnForward, logprobs: Callable[[Pack], tuple[Tensor, Tensor]], itemsize: int
) -> None:
    """Compare the learner's log-probs of an untrained policy with the model's own. itemsize: bytes of a weight. Raise
    UserError if the log-probs differ by more than rounding."""
    # kernels compiled here would be specialised to the few rows of this pack
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        learned, _ = logprobs(build_pack(own.groups))
    apart = float((learned - own.logprobs).abs().mean())
    most = max(LEAST[itemsize] / min(1.0, own.temperature), ROUNDED * own.apart)
    if not apart <= most:
        raise UserError(
            f"{name}: the learner's log-probs are {apart:.3g} away from those of the model's own forward pass, where"
            f" rounding makes {most:.2g} at most: the learner computes this model differently and would train another"
            " policy than the sampled one; evaluate it untrained, or use another model"
        )
