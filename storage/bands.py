"""The bands of problems by their screening's outcome, and the rule of the variance band, which SQL and Python share."""

from enum import StrEnum

import numpy as np


class Band(StrEnum):
    """The bands, in display order. Bands use the column `correct` only: a group of wrong rollouts with mixed tags is
    `all_zero`, although its advantages are not zero."""

    ALL_ZERO = "all_zero"
    VARIANCE = "variance"
    ALL_ONE = "all_one"


def band(num_correct: int, group_size: int) -> Band:
    """Return the band of a group. Raise ValueError if the counts are impossible.

    >>> [str(band(c, 8)) for c in (0, 3, 8)]
    ['all_zero', 'variance', 'all_one']
    """
    if not 0 <= num_correct <= group_size:
        raise ValueError(f"no group has {num_correct} of {group_size} rollouts correct")
    return Band.ALL_ZERO if num_correct == 0 else Band.ALL_ONE if num_correct == group_size else Band.VARIANCE


def in_variance_band(num_correct: int, group_size: int) -> bool:
    """Return whether a group has both outcomes; further rollouts do not change that.

    >>> in_variance_band(1, 2), in_variance_band(0, 0)
    (True, False)
    """
    return band(num_correct, group_size) is Band.VARIANCE


def variance_chance(chance: np.ndarray, group_size: int) -> np.ndarray:
    """Return the probability that a group has both outcomes, from the success rate.

    >>> variance_chance(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [0.0, 0.5, 0.0]
    """
    return 1 - chance**group_size - (1 - chance) ** group_size
