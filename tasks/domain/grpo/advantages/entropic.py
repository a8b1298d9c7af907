"""TTT-Discover's entropic objective (2026, arXiv 2601.16175)."""

from __future__ import annotations

from math import log

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, mean_of_others

#: Nats that the weighting may move from the uniform one.
DIVERGENCE = log(2)
_LARGEST, _HALVINGS = 1e6, 60


def entropic(group: Group, context: Context) -> Advantages:
    """exp(β r) over its mean among the others, minus 1. β is where softmax(β r) is DIVERGENCE from uniform, by
    bisection up to 1e6: with few right they weigh more. Groups of two are too small for it: an only best one would
    weigh without bound.

    >>> r = np.array([1.0, 1.0, 0.0, 0.0])
    >>> entropic(Group(r, r), Context())[0].round(4).tolist()
    [2.0, 2.0, -1.0, -1.0]
    """
    behind_G = group.rewards_G - group.rewards_G.max()
    low, high = 0.0, _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _from_uniform(middle * behind_G) < DIVERGENCE else (low, middle)
    weights_G = np.exp(low * behind_G)
    return weights_G / mean_of_others(weights_G) - 1, {"beta": low}


def _from_uniform(logits_G: np.ndarray) -> float:
    p = np.exp(logits_G)
    p /= p.sum()
    return float(np.sum(p * np.log(p * len(p), where=p > 0, out=np.zeros_like(p))))
