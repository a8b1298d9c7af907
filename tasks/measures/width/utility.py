"""Utility of k rollouts to a reader who sees one after another, and with patience p goes on to the next.

    utility_k = (1 − p)/(1 − p^k) · Σ_{i=1..k} p^(i−1) · 1[class i is new] · u_i,   p = 0.8

u_i: 1 for a correct rollout, where NoveltyBench (Zhang et al. 2025, arXiv 2504.05228) has a reward model's score. What
is here is its mean over all orders of the n rollouts: that a rollout of a class of n_c stands at place i and none of
its class before it has the chance C(n − n_c, i − 1) / C(n − 1, i − 1) / n. A rollout of no class earns nothing. 0 to 1.
"""

from __future__ import annotations

from math import comb

import numpy as np

from tasks.measures.width.group import Group

PATIENCE = 0.8


def utility(group: Group, k: int) -> float:
    n, weights = len(group), PATIENCE ** np.arange(k)
    classes, at_N, size_C = np.unique(group.class_N, return_inverse=True, return_counts=True)
    right_C = np.bincount(at_N, weights=group.correct_N & (group.class_N >= 0), minlength=len(classes))
    earned = 0.0
    for size, right in zip(size_C, right_C, strict=True):
        if right:
            first = [comb(n - int(size), i) / comb(n - 1, i) / n for i in range(k)]
            earned += right * float(weights @ first)
    return earned / float(weights.sum())
