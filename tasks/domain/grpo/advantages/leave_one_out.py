"""RLOO (Ahmadian et al. 2024, arXiv 2402.14740)."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.centred import centred
from tasks.domain.grpo.advantages.group import Group


def leave_one_out(group: Group) -> np.ndarray:
    """Reward minus the mean of the others: an unbiased baseline, `G / (G - 1)` times the centred one.

    >>> r = np.array([1.0, 0.0, 0.0])
    >>> leave_one_out(Group(r, r)).tolist()
    [1.0, -0.5, -0.5]
    """
    size = len(group.rewards_G)
    return centred(group) * (size / (size - 1))
