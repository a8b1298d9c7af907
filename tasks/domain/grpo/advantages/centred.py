"""Dr. GRPO (Liu et al. 2025, arXiv 2503.20783)."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def centred(group: Group, _: Context) -> Advantages:
    """Reward minus group mean; no division by the spread, which would inflate nearly solved problems.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0, 1.0])
    >>> centred(Group(r, r), Context())[0].tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return group.rewards_G - group.rewards_G.mean(), {}
