"""Distinct classes among k rollouts.

    distinct_k = Σ_c [1 − C(n − n_c, k) / C(n, k)]

n_c: rollouts of class c. The mean of NoveltyBench's distinct_k (Zhang et al. 2025, arXiv 2504.05228), the number of
classes among k generations, over all subsets of k; ecology's rarefaction (Hurlbert 1971). Over answers it is D_k, over
strategies the strategy count. A rollout of no class is drawn and adds nothing. From 0 (1 where all have a class) to k.
"""

from __future__ import annotations

from tasks.measures.width.group import Group, none_of


def distinct(group: Group, k: int) -> float:
    return sum(1.0 - none_of(len(group), int(size), k) for size in group.counts)
