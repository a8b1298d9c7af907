"""Self-BLEU of k windows: each as the hypothesis, the other k − 1 its references (Zhu et al. 2018, arXiv 1802.01886).

BLEU of order 4 with uniform weights (Papineni et al. 2002): the geometric mean of clipped precisions of 1- to 4-grams.
Windows have one length, so there is no brevity penalty. Where an order has no match, 0.1 match stands for it, as in the
authors' code (NLTK's smoothing 1), order 1 too: of 16 words 0.007 is nothing shared, and 1 is all alike: narrow is
high. Mean over subsets of k.
"""

from __future__ import annotations

import numpy as np

from tasks.domain.statistics.subsets import subsets
from tasks.measures.width.group import Group
from tasks.measures.width.windows import ORDERS

UNSEEN = 0.1
#: Words of 64 bits that are looked at at once: 200 subsets of many long texts are a hundred megabytes.
HELD = 1 << 17


def self_bleu(group: Group, k: int) -> float:
    chosen_SK = subsets(len(group), k)
    log_SK = np.zeros(chosen_SK.shape)
    for order, bits_NW in zip(ORDERS, group.words.shared, strict=True):
        match_SK = matches(bits_NW, chosen_SK)
        total = group.words.length - order + 1
        log_SK += np.log(np.where(match_SK > 0, match_SK, UNSEEN) / total) / len(ORDERS)
    return float(np.exp(log_SK).mean())


def matches(bits_NW: np.ndarray, chosen_SK: np.ndarray) -> np.ndarray:
    """(S, K) n-grams of each text that another of its subset has, as often as it does at most. bits_NW: of those that
    more than one text has, each as often as a text has it, for others match nothing.

    >>> matches(np.array([[0b111], [0b001], [0b010]], np.uint64), np.array([[0, 1], [0, 1], [1, 2]])).tolist()
    [[1, 1], [1, 1], [0, 0]]
    """
    each = max(1, HELD // (chosen_SK.shape[1] * bits_NW.shape[1]))
    parts = (_matches(bits_NW[some_SK]) for some_SK in np.split(chosen_SK, range(each, len(chosen_SK), each)))
    return np.concatenate(list(parts))


def _matches(bits_SKW: np.ndarray) -> np.ndarray:
    before_SKW = np.bitwise_or.accumulate(bits_SKW, axis=1)
    after_SKW = np.bitwise_or.accumulate(bits_SKW[:, ::-1], axis=1)[:, ::-1]
    others_SKW = np.zeros_like(bits_SKW)
    others_SKW[:, 1:] = before_SKW[:, :-1]
    others_SKW[:, :-1] |= after_SKW[:, 1:]
    return np.bitwise_count(bits_SKW & others_SKW).sum(axis=2, dtype=np.int64)
