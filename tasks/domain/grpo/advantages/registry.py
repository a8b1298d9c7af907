"""Objectives by the names that a profile gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.domain.grpo.advantages import darling, exploration
from tasks.domain.grpo.advantages.best_alone import best_alone
from tasks.domain.grpo.advantages.centred import centred
from tasks.domain.grpo.advantages.entropic import entropic
from tasks.domain.grpo.advantages.gdpo import gdpo
from tasks.domain.grpo.advantages.group import Advantage, Advantages, Context, Group, is_live
from tasks.domain.grpo.advantages.leave_one_out import leave_one_out
from tasks.domain.grpo.advantages.max_rl import max_rl
from tasks.domain.grpo.advantages.pass_at_k import pass_at_k_training
from tasks.domain.grpo.advantages.pkpo import pkpo
from tasks.domain.grpo.advantages.reinforce_plus_plus import reinforce_plus_plus, with_baseline
from tasks.domain.grpo.advantages.standardised import standardised

Need = Literal["k", "answers", "traces", "visits", "bonus"]


@dataclass(frozen=True, slots=True)
class Objective:
    """needs: of the recipe (`k`: advantage_k, `bonus`), of the rollouts (`answers`, `traces`: their classes), of the
    steps before (`visits`). trains_alike: a group whose rewards are all alike may have an advantage; else it has
    none. least_group: rollouts; least_k: attempts; beyond_k: rollouts that k attempts must leave over. version: bumped
    when its advantages change; it stands in the names of the trainings that use it, from 2 on."""

    advantage: Advantage
    needs: tuple[Need, ...] = ()
    least_group: int = 2
    least_k: int = 1
    beyond_k: int = 0
    trains_alike: bool = False
    version: int = 1


_BY_ANSWER: tuple[Need, ...] = ("answers", "bonus")

ADVANTAGES: Mapping[str, Objective] = {
    "centred": Objective(centred),
    "standardised": Objective(standardised),
    "leave_one_out": Objective(leave_one_out),
    "max_rl": Objective(max_rl, version=2),
    "pass_at_k": Objective(pass_at_k_training, ("k",), beyond_k=1, version=2),
    "pkpo": Objective(pkpo, ("k",), least_k=2, version=2),
    "best_alone": Objective(best_alone),
    "entropic": Objective(entropic, least_group=3),
    "darling_trace": Objective(darling.by_trace, ("traces",), trains_alike=True, version=2),
    "darling_answer": Objective(darling.by_answer, ("answers",), version=2),
    "ucb_mean": Objective(exploration.ucb_mean, (*_BY_ANSWER, "visits"), trains_alike=True),
    "ucb_constant": Objective(exploration.ucb_constant, (*_BY_ANSWER, "visits"), trains_alike=True),
    "batch_exploration": Objective(exploration.batch, _BY_ANSWER, trains_alike=True),
    "reinforce_plus_plus": Objective(reinforce_plus_plus, trains_alike=True),
    "reinforce_plus_plus_baseline": Objective(with_baseline),
    "gdpo": Objective(gdpo, version=2),
}


def group_advantages(group: Group, kind: str, context: Context) -> Advantages:
    """Advantages of one group and what the objective says of it; exactly zero where rewards are alike, but for
    objectives that look beyond them.

    >>> alike = np.array([0.1] * 4)
    >>> group_advantages(Group(alike, alike), "standardised", Context())[0].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    objective = ADVANTAGES[kind]
    if not objective.trains_alike and not is_live(group.rewards_G.tolist()):
        return np.zeros_like(group.rewards_G), {}
    return objective.advantage(group, context)
