"""GRPO (Shao et al. 2024, arXiv 2402.03300)."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.centred import centred
from tasks.domain.grpo.advantages.group import Group


def standardised(group: Group) -> np.ndarray:
    """Centred over the group's standard deviation (n - 1), as in the first GRPO.

    >>> r = np.array([1.0, 0.0, 1.0, 0.0])
    >>> standardised(Group(r, r)).round(4).tolist()
    [0.866, -0.866, 0.866, -0.866]
    """
    return centred(group) / group.rewards_G.std(ddof=1)
