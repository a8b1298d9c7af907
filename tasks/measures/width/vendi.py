"""Vendi score of k traces: exp of the entropy of the eigenvalues of their cosine similarities over k.

The effective number of distinct traces, from 1 to k (Friedman and Dieng 2022, arXiv 2210.02410), the mean over subsets
of k. Of a kernel, not of a partition; it has whatever length does to the encoder.
"""

from __future__ import annotations

from tasks.domain.statistics.estimators import vendi_of_k
from tasks.measures.width.group import Group


def vendi(group: Group, k: int) -> float | None:
    return vendi_of_k(group.vectors_ND, k)
