"""What an objective sees of a problem's rollouts. Axis suffix: G rollouts of one problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storage.pass_at_k import pass_at_k


@dataclass(frozen=True, slots=True)
class Group:
    """rewards_G: totals, correctness and form; correct_G: 1 or 0. Both float64. k: of objectives about k attempts."""

    rewards_G: np.ndarray
    correct_G: np.ndarray
    k: int = 1

    @property
    def form_G(self) -> np.ndarray:
        """What form alone adds to each reward."""
        return self.rewards_G - self.correct_G

    @property
    def num_correct(self) -> int:
        return int(self.correct_G.sum())


def is_live(rewards_G: Sequence[float]) -> bool:
    """Whether the group has a gradient. By equality: four times 0.1 has a tiny non-zero variance in floats.

    >>> is_live([0.1] * 4), is_live([0.0, -0.2])
    (False, True)
    """
    return any(r != rewards_G[0] for r in rewards_G)


def all_wrong(size: int, right: int, k: int) -> float:
    """Chance that k of `size` rollouts, `right` of them right, are all wrong.

    >>> all_wrong(4, 1, 2), all_wrong(4, 1, 0)
    (0.5, 1.0)
    """
    return 1.0 - float(pass_at_k(np.array([size]), np.array([right]), [k])[0, 0]) if k else 1.0


def mean_of_others(values_G: np.ndarray) -> np.ndarray:
    """
    >>> mean_of_others(np.array([1.0, 0.0, 0.5])).tolist()
    [0.25, 0.75, 0.5]
    """
    return (values_G.sum() - values_G) / (len(values_G) - 1)
