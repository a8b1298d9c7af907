"""MaxRL (2026, arXiv 2602.02710)."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.centred import centred
from tasks.domain.grpo.advantages.group import Group


def max_rl(group: Group) -> np.ndarray:
    """Correctness centred and divided by its mean, so that a hard problem's rare right answer weighs most: of one right
    in G it is G - 1. What form adds is centred beside it; a group with no right answer trains form alone.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> max_rl(Group(r, r)).tolist()
    [3.0, -1.0, -1.0, -1.0]
    """
    form = centred(Group(group.form_G, group.form_G))
    if not group.num_correct:
        return form
    share = group.correct_G.mean()
    return (group.correct_G - share) / share + form
