"""GDPO (Liu et al. 2026, arXiv 2601.05242): each reward normalised by itself."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, is_live


def gdpo(group: Group, context: Context) -> Advantages:
    """Σ over rewards of (r_k - mean_G) / std_G, here of correctness and of form, divided by the step's spread of such
    sums: no reward drowns another, whatever they are worth. A reward that is alike in the group adds nothing. The
    step's mean, which the paper takes off too, is zero. Others average the sums and leave the step's spread out; where
    rewards are two, that is a constant factor.

    >>> g = Group(np.array([1.0, 0.8, 0.0, -0.2]), np.array([1.0, 1.0, 0.0, 0.0]))
    >>> (gdpo(g, Context())[0].round(3) + 0.0).tolist()
    [1.414, 0.0, 0.0, -1.414]
    """
    spread = np.concatenate([_scores(g) for g in context.step or (group,)]).std()
    return _scores(group) / spread if spread else np.zeros_like(group.rewards_G), {}


def _scores(group: Group) -> np.ndarray:
    zero = np.zeros_like(group.rewards_G)
    parts = (group.correct_G, group.form_G)
    scores_G = sum(((r - r.mean()) / r.std(ddof=1) for r in parts if is_live(r.tolist())), zero)
    # scores that cancel leave last digits, whose spread is no scale
    return np.where(np.abs(scores_G) < 1e-12, 0.0, scores_G)
