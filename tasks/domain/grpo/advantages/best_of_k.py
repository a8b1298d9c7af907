"""Objectives about the best of several attempts."""

from __future__ import annotations

from math import log

import numpy as np

from storage.rules import in_variance_band
from tasks.domain.grpo.advantages.group import Advantages, Context, Group, all_wrong, centred_form, mean_of_others


def pass_at_k_training(group: Group, context: Context) -> Advantages:
    """Pass@k training (Chen et al. 2025, arXiv 2508.10751), its closed form.

    Every k of the G rollouts are a group that is right if one of them is; its standardised reward, averaged over the
    groups that a rollout is in. With N₋ wrong: R̄ = 1 - C(N₋, k) / C(G, k) and σ = √(R̄ (1 - R̄)) over all groups, A₊
    = (1 - R̄) / σ, A₋ = (1 - R̄ - C(N₋ - 1, k - 1) / C(G - 1, k - 1)) / σ. Zero where every group is right or none is,
    or so nearly that floats do not tell. What form adds is centred beside it.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> pass_at_k_training(Group(r, r), Context(k=2))[0].round(4).tolist()
    [1.0, -0.3333, -0.3333, -0.3333]
    """
    size, right, k = len(group.correct_G), group.num_correct, context.k
    form = centred_form(group)
    failed = all_wrong(size, right, k)
    if failed in (0, 1):
        return form, {}
    sigma = (failed * (1 - failed)) ** 0.5
    of_wrong = failed - all_wrong(size - 1, right, k - 1)
    return np.where(group.correct_G > 0, failed, of_wrong) / sigma + form, {}


def pkpo(group: Group, context: Context) -> Advantages:
    """Pass@k policy optimisation (Walder and Karkhanis 2025, arXiv 2505.15201).

    What each rollout adds to the pass@k of the k that it is drawn with, times k / G: unbiased for the gradient of
    pass@k, with the baseline of least variance, the same k - 1 without it. A right one adds where they all are wrong,
    (k / G) (1 - ρ(G - 1, c - 1, k - 1)) of c right; a wrong one adds nothing. What form adds is centred beside it.

    >>> from numpy import array
    >>> r = array([1.0, 1.0, 0.0, 0.0])
    >>> pkpo(Group(r, r), Context(k=2))[0].round(4).tolist()
    [0.3333, 0.3333, 0.0, 0.0]
    """
    size, right, k = len(group.correct_G), group.num_correct, context.k
    form = centred_form(group)
    if not right:
        return form, {}
    return group.correct_G * (k / size) * all_wrong(size - 1, right - 1, k - 1) + form, {}


def best_alone(group: Group, _: Context) -> Advantages:
    """GRPO for pass@k by its best rollout (Tang et al. 2025, arXiv 2503.19595).

    The best rollout's reward minus the second best; nothing for the others, nor where two are best.

    >>> best_alone(Group(np.array([1.0, 0.0, -0.2]), np.array([1.0, 0.0, 0.0])), Context())[0].tolist()
    [1.0, 0.0, 0.0]
    """
    second, best = np.sort(group.rewards_G)[-2:]
    advantages = np.zeros_like(group.rewards_G)
    advantages[int(group.rewards_G.argmax())] = best - second
    return advantages, {}


def best_alone_standardised(group: Group, context: Context) -> Advantages:
    """That over the group's standard deviation (n - 1): verl's `grpo_passk` by default, which the paper does not have.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> best_alone_standardised(Group(r, r), Context())[0].tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    return best_alone(group, context)[0] / group.rewards_G.std(ddof=1), {}


#: Nats that the weighting may move from the uniform one.
DIVERGENCE = log(2)
_LARGEST, _HALVINGS = 1e6, 60


def entropic(group: Group, _: Context) -> Advantages:
    """TTT-Discover's entropic objective (2026, arXiv 2601.16175).

    exp(β r) over its mean among the others, minus 1, r correctness. β is where softmax(β r) is DIVERGENCE from
    uniform, by bisection up to 1e6: with few right they weigh more. Groups of two are too small for it: an only best
    one would weigh without bound. What form adds is centred beside it: of rewards, β would make as much of a broken
    tag in a group without a right answer as of a right one.

    >>> r = np.array([1.0, 1.0, 0.0, 0.0])
    >>> entropic(Group(r, r), Context())[0].round(4).tolist()
    [2.0, 2.0, -1.0, -1.0]
    """
    form_G = centred_form(group)
    if not in_variance_band(group.num_correct, len(group.correct_G)):
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
