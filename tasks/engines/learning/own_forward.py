"""Whether the learner computes a model: by its type before anything is sampled, by measurement once it is loaded.

The learner computes plain attention and a plain head. Types that were tried are listed; of any model its log-probs of a
pack are compared with those of the model's own forward pass, so that another attention, mask, head or position shows.
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

#: Mean difference of log-probs at temperature 1 that says nothing, by bytes of a weight.
LEAST = {8: 1e-3, 4: 1e-3, 2: 1e-2}
#: Above it the learner may be this many times as far from the model as two attentions of the model's own are from each
#: other, which rounding alone keeps apart: 0.9 to 1.4 times in 500 models on a CPU, where scores of nine tenths make 3
#: and of a half 14. Fused kernels of a GPU round elsewhere, hence the room.
ROUNDED = 4
#: Tokens of two prompts, and of their completions.
_PROMPTS, _COMPLETIONS = (13, 5), (17, 8, 1)


def probe(vocabulary: int) -> list[PromptGroup]:
    """Groups of random tokens: completions of several lengths that share a prompt, and another prompt in the same pack.

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
    """Log-probs of a probe's tokens, end to end, as the model's authors have them. apart: the mean distance of another
    attention of theirs from it."""

    groups: Sequence[PromptGroup]
    logprobs: Tensor
    apart: float
    temperature: float


def own_forward(model: Any, temperature: float) -> OwnForward:
    """Each rollout by itself through the model, before anything of the learner is put into it."""
    groups = probe(model.get_input_embeddings().num_embeddings)
    model.set_attn_implementation("eager")
    plain = other = _logprobs(model, groups, temperature)
    with suppress(ValueError):  # a model that its authors wrote one attention for
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
    """logprobs: the learner's, of a policy that no update has moved, whose weights are `itemsize` bytes each.

    Errors: UserError where the two are no one policy.
    """
    # what is compiled for packs of a training would be for the few rows of this one
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        learned, _ = logprobs(build_pack(own.groups))
    apart = float((learned - own.logprobs).abs().mean())
    most = max(LEAST[itemsize] / min(1.0, own.temperature), ROUNDED * own.apart)
    if not apart <= most:
        raise UserError(
            f"{name}: the learner's log-probs are {apart:.3g} away from those of the model's own forward pass, where"
            f" rounding makes {most:.2g} at most: the model computes something that the learner does not, and what is"
            " trained would be another policy than the one that samples; evaluate it untrained, or take another"
        )
