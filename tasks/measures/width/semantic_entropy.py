"""Semantic entropy: over classes of k rollouts, in nats (Farquhar et al. 2024, Nature 630).

    −Σ_c p_c log p_c

by counts, the discrete one: p_c = share of the k rollouts in class c. By likelihood: p_c ∝ Σ_{i in c} exp(l_i), where
l_i is the mean log-probability a token, as the authors' code has it, or the whole sequence's, as their formula has it.
The latter is all but one rollout's where traces are long. Only rollouts of a class are looked at. From 0 to log k; the
plug-in of k rollouts, so it grows with k, and policies compare at one k.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb, log

import numpy as np

from tasks.domain.statistics.subsets import subsets
from tasks.measures.width.group import Group

NO_LIKELIHOOD = "a rollout has no log-probability"


def by_counts(group: Group, k: int) -> float:
    n = len(group)
    return sum(_expected(n, int(size), k) for size in group.counts)


@lru_cache(maxsize=4096)
def _expected(n: int, size: int, k: int) -> float:
    """Of −p log p, where p is the share of a class of this size in k of n rollouts."""
    ways = ((j, comb(size, j) * comb(n - size, k - j)) for j in range(1, min(size, k) + 1))
    return sum(-(j / k) * log(j / k) * w for j, w in ways) / comb(n, k)


def by_likelihood(group: Group, k: int) -> float | str:
    """Length-normalised."""
    return _weighted(group, group.logprob_N / np.maximum(group.num_tokens_N, 1), k)


def by_sequence_likelihood(group: Group, k: int) -> float | str:
    return _weighted(group, group.logprob_N, k)


def _weighted(group: Group, log_weight_N: np.ndarray, k: int) -> float | str:
    if not np.isfinite(log_weight_N).all():
        return NO_LIKELIHOOD
    chosen_SK = subsets(len(group), k)
    log_SK = log_weight_N[chosen_SK]
    weight_SK = np.exp(log_SK - log_SK.max(axis=1, keepdims=True))
    classes, at_N = np.unique(group.class_N, return_inverse=True)
    mass_SC = np.zeros((len(chosen_SK), len(classes)))
    np.add.at(mass_SC, (np.arange(len(chosen_SK))[:, None], at_N[chosen_SK]), weight_SK)
    p_SC = mass_SC / mass_SC.sum(axis=1, keepdims=True)
    return float(-(p_SC * np.log(np.where(p_SC > 0, p_SC, 1.0))).sum(axis=1).mean())
