"""Dr. GRPO (Liu et al. 2025, arXiv 2503.20783)."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.group import Group


def centred(group: Group) -> np.ndarray:
    """Reward minus group mean; no division by the spread, which would inflate nearly solved problems.

    >>> centred(Group(np.array([1.0, 0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0]))).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return group.rewards_G - group.rewards_G.mean()
