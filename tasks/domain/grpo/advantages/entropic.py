"""TTT-Discover's entropic objective (2026, arXiv 2601.16175)."""

from __future__ import annotations

from math import log

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form, mean_of_others

#: Nats that the weighting may move from the uniform one.
DIVERGENCE = log(2)
_LARGEST, _HALVINGS = 1e6, 60


def entropic(group: Group, _: Context) -> Advantages:
    """exp(β r) over its mean among the others, minus 1, r correctness. β is where softmax(β r) is DIVERGENCE from
    uniform, by bisection up to 1e6: with few right they weigh more. Groups of two are too small for it: an only best
    one would weigh without bound. What form adds is centred beside it: of rewards, β would make as much of a broken tag
    in a group without a right answer as of a right one.

    >>> r = np.array([1.0, 1.0, 0.0, 0.0])
    >>> entropic(Group(r, r), Context())[0].round(4).tolist()
    [2.0, 2.0, -1.0, -1.0]
    """
    form_G = centred_form(group)
    if group.num_correct in (0, len(group.correct_G)):
        return form_G, {}
    behind_G = group.correct_G - 1.0
    low, high = 0.0, _LARGEST
    for _halving in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _from_uniform(middle * behind_G) < DIVERGENCE else (low, middle)
    weights_G = np.exp(low * behind_G)
    return weights_G / mean_of_others(weights_G) - 1 + form_G, {"beta": low}


def _from_uniform(logits_G: np.ndarray) -> float:
    p = np.exp(logits_G)
    p /= p.sum()
    return float(np.sum(p * np.log(p * len(p), where=p > 0, out=np.zeros_like(p))))
