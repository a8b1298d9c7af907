"""RLOO (Ahmadian et al. 2024, arXiv 2402.14740)."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def leave_one_out(group: Group, _: Context) -> Advantages:
    """Reward minus the mean of the others: an unbiased baseline, `G / (G - 1)` times the centred one.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0])
    >>> leave_one_out(Group(r, r), Context())[0].tolist()
    [1.0, -0.5, -0.5]
    """
    size = len(group.rewards_G)
    return (group.rewards_G - group.rewards_G.mean()) * (size / (size - 1)), {}
