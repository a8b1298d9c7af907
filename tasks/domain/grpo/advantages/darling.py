"""DARLING (Li et al. 2025, arXiv 2509.02534)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, minus_mean

#: Least factor of a right rollout, as in the authors' code: one whose class is the whole group's stays right.
FLOOR = 0.1


def by_trace(group: Group, _: Context) -> Advantages:
    """Right rollouts weigh by how many others took another way: `Group.traces`. A trace that names no way has the least
    factor, or an empty one would pay.

    >>> r = np.array([1.0, 1.0, 1.0, 0.0])
    >>> by_trace(Group(r, r, traces=(0, 0, 1, 2)), Context())[0].round(4).tolist()
    [0.0833, 0.0833, 0.4167, -0.5833]
    """
    return _darling(group, group.traces)


def by_answer(group: Group, _: Context) -> Advantages:
    """Right rollouts weigh by how many others answered otherwise: they share a class, so the rare one weighs most."""
    return _darling(group, group.answers)


def _darling(group: Group, classes: Sequence[Hashable]) -> Advantages:
    """r'_i = correct_i · max(Div_i, FLOOR), Div_i the share of the n - 1 others that are in another class (eq. 4 and
    5), 0 without a class of its own; A = r' - mean(r'), without a spread (section 3.2). A product, so that a wrong
    rollout earns nothing by being different; what form adds is centred beside it. classes and diversity are told of
    groups with a right rollout: of the others no class is asked for."""
    size, counts = len(classes), Counter(classes)
    diversity_G = np.array([0.0 if one is None else (size - counts[one]) / (size - 1) for one in classes])
    weighted_G = group.correct_G * np.maximum(diversity_G, FLOOR)
    told = {"classes": float(len(counts)), "diversity": float(diversity_G.mean())} if group.correct_G.any() else {}
    return minus_mean(weighted_G) + minus_mean(group.form_G), told
