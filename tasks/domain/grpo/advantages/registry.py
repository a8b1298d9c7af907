"""Objectives by the names that a profile gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tasks.domain.grpo.advantages.best_alone import best_alone
from tasks.domain.grpo.advantages.centred import centred
from tasks.domain.grpo.advantages.entropic import entropic
from tasks.domain.grpo.advantages.group import Group, is_live
from tasks.domain.grpo.advantages.leave_one_out import leave_one_out
from tasks.domain.grpo.advantages.max_rl import max_rl
from tasks.domain.grpo.advantages.pass_at_k import pass_at_k_training
from tasks.domain.grpo.advantages.pkpo import pkpo
from tasks.domain.grpo.advantages.standardised import standardised

ADVANTAGES: Mapping[str, Callable[[Group], np.ndarray]] = {
    "centred": centred,
    "standardised": standardised,
    "leave_one_out": leave_one_out,
    "max_rl": max_rl,
    "pass_at_k": pass_at_k_training,
    "pkpo": pkpo,
    "best_alone": best_alone,
    "entropic": entropic,
}
#: Those that are about k attempts, and the smallest group of those that need more than two rollouts.
OF_K = frozenset({"pass_at_k", "pkpo"})
LEAST_GROUP = {"entropic": 3}


def group_advantages(group: Group, kind: str) -> np.ndarray:
    """Advantages of one group, float64; exactly zero for a dead group whatever the kind.

    >>> alike = np.array([0.1] * 4)
    >>> group_advantages(Group(alike, alike), "standardised").tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    return ADVANTAGES[kind](group) if is_live(group.rewards_G.tolist()) else np.zeros_like(group.rewards_G)
