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


def best_alone_standardised(group: Group, context: Context) -> Advantages:
    """That over the group's standard deviation (n - 1): verl's `grpo_passk` by default, which the paper does not have.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> best_alone_standardised(Group(r, r), Context())[0].tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    return best_alone(group, context)[0] / group.rewards_G.std(ddof=1), {}
