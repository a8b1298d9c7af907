"""Expectation-adjusted distinct (EAD) of k windows: different words over those that chance would show.

    EAD = D / (V · [1 − ((V − 1)/V)^C])

D: different words of the k windows; C: words in them; V: the vocabulary, here the different words in the windows of
all policies that are compared (Liu et al. 2022, arXiv 2202.13587, of single words). D is the mean over subsets of k.
Windows have one length, so C is the same everywhere and V only scales. Above 1 words repeat less than by chance.
"""

from __future__ import annotations

from itertools import chain, repeat
from math import fsum

from tasks.measures.width.group import Group, none_of


def expectation_adjusted_distinct(group: Group, k: int) -> float:
    seen = (repeat(1.0 - none_of(len(group), times, k), words) for times, words in group.words.held_by.items())
    return fsum(chain.from_iterable(seen)) / _by_chance(group, k)


def most(group: Group, k: int) -> float:
    """Every word another, as far as the vocabulary goes."""
    return min(group.vocabulary, k * group.words.length) / _by_chance(group, k)


def _by_chance(group: Group, k: int) -> float:
    return group.vocabulary * (1.0 - (1.0 - 1.0 / group.vocabulary) ** (k * group.words.length))
