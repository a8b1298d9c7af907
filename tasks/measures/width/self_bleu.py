"""Self-BLEU of k windows: each as the hypothesis, the other k − 1 its references (Zhu et al. 2018, arXiv 1802.01886).

BLEU of order 4 with uniform weights (Papineni et al. 2002): the geometric mean of clipped precisions of 1- to 4-grams.
Windows have one length, so there is no brevity penalty. Where an order has no match, 0.1 match stands for it, as in the
authors' code (NLTK's smoothing 1), order 1 too: of 16 words 0.007 is nothing shared, and 1 is all alike: narrow is
high. Mean over subsets of k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tasks.domain.statistics.subsets import subsets
from tasks.measures.width.group import Group

ORDERS = (1, 2, 3, 4)
UNSEEN = 0.1
#: Subsets that are looked at at once: what 200 of long texts share are a hundred megabytes.
TOGETHER = 25


def self_bleu(group: Group, k: int) -> float:
    chosen_SK = subsets(len(group), k)
    parts = np.split(chosen_SK, range(TOGETHER, len(chosen_SK), TOGETHER))
    log_SK = np.zeros(chosen_SK.shape)
    texts = [words for words in group.words if words is not None]
    for order in ORDERS:
        count_NV = ngram_counts(texts, order)
        total_N, shared_NV = count_NV.sum(axis=1), count_NV[:, (count_NV > 0).sum(axis=0) > 1]
        match_SK = np.concatenate([matches(shared_NV[one_SK]) for one_SK in parts])
        log_SK += np.log(np.where(match_SK > 0, match_SK, UNSEEN) / total_N[chosen_SK]) / len(ORDERS)
    return float(np.exp(log_SK).mean())


def matches(count_SKV: np.ndarray) -> np.ndarray:
    """(S, K) n-grams of each text that another of its subset has, as often as it does at most. count_SKV: of those that
    more than one text has, for others match nothing.

    >>> matches(np.array([[[2, 1], [1, 0]]])).tolist()
    [[1, 1]]
    """
    # the most that any other has: the largest, or for the one that has it the second
    top_2SV = np.sort(np.partition(count_SKV, -2, axis=1)[:, -2:], axis=1)
    others_SKV = np.where(count_SKV == top_2SV[:, 1:], top_2SV[:, :1], top_2SV[:, 1:])
    return np.minimum(count_SKV, others_SKV).sum(axis=2)


def ngram_counts(texts: Sequence[Sequence[str]], order: int) -> np.ndarray:
    """(N, V) how often each text has each n-gram.

    >>> ngram_counts(["aab", "ab"], 2).tolist()
    [[1, 1], [0, 1]]
    """
    held = [Counter(zip(*(words[i:] for i in range(order)), strict=False)) for words in texts]
    places = {gram: place for place, gram in enumerate(sorted(set().union(*held)))}
    count_NV = np.zeros((len(texts), len(places)), np.int32)
    for row, counts in zip(count_NV, held, strict=True):
        for gram, times in counts.items():
            row[places[gram]] = times
    return count_NV
