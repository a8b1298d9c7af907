"""Bands: what a group of rollouts says of a problem, by how many of them are correct. Only `variance` has a
group-relative gradient. Questions in SQL ask this very rule: storage.sql."""

from __future__ import annotations

from enum import StrEnum


class Band(StrEnum):
    """In the order in which everything lists them; of `correct` alone, so that a group all wrong with mixed tags is
    `all_zero` although its advantages are not zero."""

    ALL_ZERO = "all_zero"
    VARIANCE = "variance"
    ALL_ONE = "all_one"


def band(num_correct: int, group_size: int) -> Band:
    """Errors: ValueError for more correct rollouts than there are, or fewer than none.

    >>> [str(band(c, 8)) for c in (0, 3, 8)]
    ['all_zero', 'variance', 'all_one']
    """
    if not 0 <= num_correct <= group_size:
        raise ValueError(f"no group has {num_correct} of {group_size} rollouts correct")
    return Band.ALL_ZERO if num_correct == 0 else Band.ALL_ONE if num_correct == group_size else Band.VARIANCE
