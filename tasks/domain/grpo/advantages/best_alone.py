"""GRPO for pass@k by its best rollout (Tang et al. 2025, arXiv 2503.19595)."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def best_alone(group: Group, _: Context) -> Advantages:
    """The best rollout's reward minus the second best; nothing for the others, nor where two are best.

    >>> best_alone(Group(np.array([1.0, 0.0, -0.2]), np.array([1.0, 0.0, 0.0])), Context())[0].tolist()
    [1.0, 0.0, 0.0]
    """
    second, best = np.sort(group.rewards_G)[-2:]
    advantages = np.zeros_like(group.rewards_G)
    advantages[int(group.rewards_G.argmax())] = best - second
    return advantages, {}
