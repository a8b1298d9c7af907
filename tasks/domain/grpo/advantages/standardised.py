"""GRPO (Shao et al. 2024, arXiv 2402.03300)."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def standardised(group: Group, _: Context) -> Advantages:
    """Centred over the group's standard deviation (n - 1), as in the first GRPO.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 1.0, 0.0])
    >>> standardised(Group(r, r), Context())[0].round(4).tolist()
    [0.866, -0.866, 0.866, -0.866]
    """
    return (group.rewards_G - group.rewards_G.mean()) / group.rewards_G.std(ddof=1), {}
