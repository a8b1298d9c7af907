"""That the learner computes the model it has loaded: its log-probs of a pack, against the model's own forward pass.

What no field of config.json gives away shows here: another attention, a mask, a head, positions, a state that runs on
from one rollout into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.engines.learning.attention import ATTENTION_NAME

if TYPE_CHECKING:
    from torch import Tensor

#: Mean difference of a log-prob that rounding makes at most, by bytes of a weight. Of random tokens, which a model is
#: surest not to write: in bfloat16 logits of 20 are cut to .1.
ROUNDING = {8: 1e-3, 4: 1e-3, 2: 0.3}
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


def own_logprobs(model: Any, groups: Sequence[PromptGroup], temperature: float) -> Tensor:
    """Log-probs of all completions' tokens, end to end: each rollout by itself through the model as its authors wrote
    it, with the attention that all models have. Float32. Before anything of the learner is put into the model."""
    import torch

    found = []
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for group in groups:
            for one in group.trajectories:
                ids = torch.tensor([*group.prompt_ids, *one.token_ids], device=model.device)
                logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0].float() / temperature
                first, targets = len(group.prompt_ids) - 1, ids[len(group.prompt_ids) :]
                found.append(logits[first:].log_softmax(-1).gather(1, targets[:, None])[:, 0])
    model.set_attn_implementation(ATTENTION_NAME)
    return torch.cat(found)


def refuse_otherwise(name: str, own: Tensor, learned: Tensor, itemsize: int) -> None:
    """own, learned: log-probs of the same tokens, before any update. itemsize: bytes of a weight.

    Errors: UserError where the two are no one policy.
    """
    apart, most = float((learned - own).abs().mean()), ROUNDING[itemsize]
    if not apart <= most:
        raise UserError(
            f"{name}: the learner's log-probs are {apart:.3g} away from those of the model's own forward pass, where"
            f" rounding makes {most:g} at most: the model computes something that the learner does not, and what is"
            " trained would be another policy than the one that samples; evaluate it untrained, or take another"
        )
