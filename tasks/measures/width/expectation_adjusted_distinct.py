"""Expectation-adjusted distinct (EAD) of k windows: different words over those that chance would show.

    EAD = D / (V · [1 − ((V − 1)/V)^C])

D: different words of the k windows; C: words in them; V: the vocabulary, here the different words in the windows of
all policies that are compared (Liu et al. 2022, arXiv 2202.13587, of single words). D is the mean over subsets of k.
Windows have one length, so C is the same everywhere and V only scales. Above 1 words repeat less than by chance.
"""

from __future__ import annotations

from collections import Counter
from math import fsum

from tasks.measures.width.group import Group, none_of


def expectation_adjusted_distinct(group: Group, k: int) -> float:
    texts = [words for words in group.words if words is not None]
    held = Counter(word for words in texts for word in set(words))
    # in whatever order a set gives its words, to the last bit
    found = fsum(1.0 - none_of(len(texts), times, k) for times in held.values())
    return found / _by_chance(group, k)


def most(group: Group, k: int) -> float:
    """Every word another, as far as the vocabulary goes."""
    length = next(len(words) for words in group.words if words is not None)
    return min(group.vocabulary, k * length) / _by_chance(group, k)


def _by_chance(group: Group, k: int) -> float:
    length = next(len(words) for words in group.words if words is not None)
    return group.vocabulary * (1.0 - (1.0 - 1.0 / group.vocabulary) ** (k * length))
