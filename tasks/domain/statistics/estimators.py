"""Estimators over one group of rollouts, vectorised over many groups. An undefined estimate is None, never 0 or 1.

Axes: P problems, N rollouts, S subsets of them, K members of a subset, D dimensions (docs/architecture.md).
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

# The mean over subsets of k of a group's n rollouts estimates the value for k new rollouts.


@lru_cache(maxsize=256)
def subsets(n: int, k: int, most: int = 200, seed: int = 0) -> np.ndarray:
    """Return (S, k) indices: all subsets of k of n, or `most` random ones if there are more. Random subsets are cut
    from random orders of all n, so those of one order are disjoint. This reduces their error to a third of that of
    independent subsets (measured for Vendi scores of 8 of 16).

    >>> subsets(3, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    >>> np.bincount(subsets(40, 10).ravel()).tolist() == [50] * 40
    True
    """
    if comb(n, k) <= most:
        return np.array(list(combinations(range(n), k)), np.int64).reshape(-1, k)
    pieces = n // k
    order_RN = np.random.default_rng([seed, n]).random((-(-most // pieces), n)).argsort(axis=1)
    return order_RN[:, : pieces * k].reshape(-1, k)[:most]


def g_pass_at_k(n_P: np.ndarray, c_P: np.ndarray, k: int) -> np.ndarray:
    """Return (P, k) unbiased chances that at least 1, 2, … k of k rollouts are correct; NaN where n < k. The chances
    are tails of the hypergeometric distribution (Liu et al. 2024, arXiv 2412.13147).

    >>> g_pass_at_k(np.array([4, 2]), np.array([3, 2]), 3).round(4).tolist()
    [[1.0, 1.0, 0.25], [nan, nan, nan]]
    """
    from scipy.stats import hypergeom

    enough_P1 = (n_P >= k)[:, None]
    return np.where(enough_P1, hypergeom.sf(np.arange(k), np.maximum(n_P, k)[:, None], c_P[:, None], k), np.nan)


def mean_pairwise_distance(vectors_ND: np.ndarray) -> float | None:
    """Return the mean cosine distance over the n(n−1)/2 pairs of unit vectors; None for fewer than two.

    Σ_{i≠j} v_i·v_j = |Σ v|² − n, so no n × n matrix is formed.

    >>> mean_pairwise_distance(np.array([[1.0, 0], [0, 1], [0, 1]]))
    0.6666666666666667
    >>> mean_pairwise_distance(np.ones((1, 1))) is None
    True
    """
    n = len(vectors_ND)
    if n < 2:
        return None
    total_D = vectors_ND.astype(np.float64).sum(axis=0)
    squares = float(np.square(vectors_ND, dtype=np.float64).sum())
    return 1.0 - (float(total_D @ total_D) - squares) / (n * (n - 1))


def spread(vectors_ND: np.ndarray) -> float | None:
    """Return the trace of the covariance (with n − 1), which for unit vectors is the mean pairwise distance; None for
    fewer than two. Publications that divide by n print (n − 1)/n of this value.

    >>> spread(np.array([[1.0, 0], [0, 1]]))
    1.0
    """
    if len(vectors_ND) < 2:
        return None
    return float(vectors_ND.astype(np.float64).var(axis=0, ddof=1).sum())


#: The largest cosine distance at which two traces are joined.
JOINED = 0.25


def num_clusters(vectors_ND: np.ndarray) -> int | None:
    """Return the number of DBSCAN clusters with min_samples 2, counting each noise point, as in the publication. These
    clusters are the connected components of traces at a cosine distance of at most JOINED. Return None for one trace.

    >>> num_clusters(np.array([[1.0, 0], [1, 0], [0, 1]]))
    2
    """
    from scipy.sparse.csgraph import connected_components

    if len(vectors_ND) < 2:
        return None
    v = vectors_ND.astype(np.float64)
    return int(connected_components((1.0 - v @ v.T) <= JOINED, directed=False, return_labels=False))


def vendi_of_k(vectors_ND: np.ndarray, k: int) -> float | None:
    """Return the mean Vendi score over k-subsets of the n traces, so that groups of unequal n can be compared; None if
    n < k. The score is the effective number of distinct traces: exp of the entropy of the eigenvalues of the
    similarities divided by k (Friedman and Dieng 2022, arXiv 2210.02410).

    >>> round(vendi_of_k(np.repeat(np.eye(2), 2, axis=0), 2), 4)  # of six pairs two are alike
    1.6667
    """
    n = len(vectors_ND)
    if n < k:
        return None
    chosen_SKD = vectors_ND.astype(np.float64)[subsets(n, k)]
    weights_SK = np.linalg.eigvalsh(chosen_SKD @ chosen_SKD.transpose(0, 2, 1) / k).clip(1e-12)
    weights_SK /= weights_SK.sum(axis=1, keepdims=True)
    return float(np.exp(-(weights_SK * np.log(weights_SK)).sum(axis=1)).mean())


def length_cv(lengths_N: np.ndarray) -> float | None:
    """Return the coefficient of variation (n − 1), times 1 + 1/(4n) (Haldane 1955); None if undefined.

    >>> round(length_cv(np.array([1.0, 3.0])), 4)
    0.7955
    """
    n, mean = len(lengths_N), float(np.mean(lengths_N)) if len(lengths_N) else 0.0
    return None if n < 2 or mean == 0 else float(np.std(lengths_N, ddof=1) / mean * (1 + 1 / (4 * n)))


# ---- accuracy of one answer that is chosen from k rollouts, by majority vote or by the best score


def majority_chance(answers: Sequence[Hashable | None], correct: Sequence[bool], chosen_SK: np.ndarray) -> float:
    """Return the share of subsets whose most frequent answer is correct. Tied answers share the vote. A rollout without
    an answer casts no vote; a subset without votes is wrong. chosen_SK: indices of rollouts.

    >>> majority_chance(["a", "a", "b", None], [True, True, False, False], np.array([[0, 1, 2], [0, 2, 3]]))
    0.75
    """
    names = {a: i for i, a in enumerate(dict.fromkeys(a for a in answers if a is not None))}
    if not names:
        return 0.0
    vote_NC = np.zeros((len(answers), len(names)))
    right_C = np.zeros(len(names), bool)
    for i, a in enumerate(answers):
        if a is not None:
            vote_NC[i, names[a]] = 1
            right_C[names[a]] |= bool(correct[i])
    votes_SC = vote_NC[chosen_SK].sum(axis=1)
    best_SC = (votes_SC == votes_SC.max(axis=1, keepdims=True)) & (votes_SC > 0)
    return float(((best_SC * right_C).sum(axis=1) / np.maximum(best_SC.sum(axis=1), 1)).mean())


def best_chance(
    answers: Sequence[Hashable | None], correct: Sequence[bool], scores: Sequence[float], chosen_SK: np.ndarray
) -> float:
    """Return the share of subsets whose answer with the best score is correct. Of equal scores the first counts.

    >>> best_chance(["a", None, "b"], [True, False, False], [-5, -1, -9], np.array([[0, 1, 2], [1, 2, 1]]))
    0.5
    """
    has = np.array([a is not None for a in answers])
    score = np.where(has, np.asarray(scores, np.float64), -np.inf)
    first = chosen_SK[np.arange(len(chosen_SK)), score[chosen_SK].argmax(axis=1)]
    return float((np.asarray(correct, bool)[first] & has[first]).mean())
