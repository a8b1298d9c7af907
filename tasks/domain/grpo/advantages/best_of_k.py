"""Objectives for the best of several attempts. The format reward is centred separately from correctness."""

from math import log

import numpy as np

from storage.estimates import in_variance_band, pass_at_k
from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form


def all_wrong(size: int, right: int, k: int) -> float:
    """Return the probability that k rollouts out of `size`, of which `right` are correct, are all wrong.

    >>> all_wrong(4, 1, 2), all_wrong(4, 1, 0)
    (0.5, 1.0)
    """
    return 1.0 - float(pass_at_k(np.array([size]), np.array([right]), [k])[0, 0]) if k else 1.0


def pass_at_k_training(group: Group, context: Context) -> Advantages:
    """Pass@k training (Chen et al. 2025, arXiv 2508.10751), in closed form.

    Every subset of k of the G rollouts has reward 1 if at least one of its rollouts is correct, else 0. These rewards
    are standardised. The advantage of a rollout is the mean over the subsets that contain it. If all subsets have the
    same reward (up to floating-point precision), all advantages are zero.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> pass_at_k_training(Group(r, r), Context(k=2))[0].round(4).tolist()
    [1.0, -0.3333, -0.3333, -0.3333]
    """
    size, right, k = len(group.correct_G), group.num_correct, context.k
    failed = all_wrong(size, right, k)
    if failed in (0, 1):
        return centred_form(group), {}
    of_wrong = failed - all_wrong(size - 1, right, k - 1)
    sigma = (failed * (1 - failed)) ** 0.5
    return np.where(group.correct_G > 0, failed, of_wrong) / sigma + centred_form(group), {}


def pkpo(group: Group, context: Context) -> Advantages:
    """Pass@k policy optimisation (Walder and Karkhanis 2025, arXiv 2505.15201).

    The advantage of a rollout is k / G times its mean contribution to the pass@k of the k-subsets that contain it. A
    correct rollout contributes 1 to a subset whose other rollouts are all wrong; a wrong rollout contributes nothing.
    This estimate of the gradient of pass@k is unbiased, and its baseline minimises the variance.
    """
    size, right, k = len(group.correct_G), group.num_correct, context.k
    added = (k / size) * all_wrong(size - 1, right - 1, k - 1) if right else 0.0
    return group.correct_G * added + centred_form(group), {}


def best_alone(group: Group, _: Context) -> Advantages:
    """GRPO for pass@k by its best rollout (Tang et al. 2025, arXiv 2503.19595). The advantage of the best rollout is
    its reward minus the second best reward; all others have zero. If two rollouts are tied for best, all have zero."""
    second, best = np.sort(group.rewards_G)[-2:]
    advantages_G = np.zeros_like(group.rewards_G)
    advantages_G[int(group.rewards_G.argmax())] = best - second
    return advantages_G, {}


def best_alone_standardised(group: Group, context: Context) -> Advantages:
    """`best_alone` divided by the group's standard deviation (n - 1): verl's `grpo_passk`, not in the paper.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> best_alone_standardised(Group(r, r), Context())[0].tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    return best_alone(group, context)[0] / group.rewards_G.std(ddof=1), {}


#: KL divergence of the weighting from the uniform one, in nats.
DIVERGENCE = log(2)


def entropic(group: Group, _: Context) -> Advantages:
    """TTT-Discover's entropic objective (2026, arXiv 2601.16175): exp(β · correct) / its mean over the others - 1.

    Bisection up to 1e6 finds the β for which softmax(β · correct) has KL divergence DIVERGENCE from uniform. So correct
    rollouts weigh more when they are few. A group needs at least three rollouts, or the weight of a single correct
    rollout could be unbounded.

    >>> r = np.array([1.0, 1.0, 0.0, 0.0])
    >>> entropic(Group(r, r), Context())[0].round(4).tolist()
    [2.0, 2.0, -1.0, -1.0]
    """
    if not in_variance_band(group.num_correct, len(group.correct_G)):
        return centred_form(group), {}
    behind_G = group.correct_G - 1.0
    low, high = 0.0, 1e6
    for _halving in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _from_uniform(middle * behind_G) < DIVERGENCE else (low, middle)
    weights_G = np.exp(low * behind_G)
    mean_of_others_G = (weights_G.sum() - weights_G) / (len(weights_G) - 1)
    return weights_G / mean_of_others_G - 1 + centred_form(group), {"beta": low}


def _from_uniform(logits_G: np.ndarray) -> float:
    p = np.exp(logits_G)
    p /= p.sum()
    return float(np.sum(p * np.log(p * len(p), where=p > 0, out=np.zeros_like(p))))
