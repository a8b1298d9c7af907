"""Objectives by the names that a profile gives them: ours, and those of other packages (`varband.objectives`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.advantages import darling, exploration, multi_rlvr
from tasks.domain.grpo.advantages.best_alone import best_alone, best_alone_standardised
from tasks.domain.grpo.advantages.brought import held
from tasks.domain.grpo.advantages.centred import centred
from tasks.domain.grpo.advantages.entropic import entropic
from tasks.domain.grpo.advantages.gdpo import gdpo
from tasks.domain.grpo.advantages.group import Advantage, Advantages, Context, Group, is_live
from tasks.domain.grpo.advantages.leave_one_out import leave_one_out
from tasks.domain.grpo.advantages.max_rl import max_rl
from tasks.domain.grpo.advantages.multi_agent import multi_agent
from tasks.domain.grpo.advantages.pass_at_k import pass_at_k_training
from tasks.domain.grpo.advantages.pkpo import pkpo
from tasks.domain.grpo.advantages.refined import refined
from tasks.domain.grpo.advantages.reinforce_plus_plus import reinforce_plus_plus, with_baseline
from tasks.domain.grpo.advantages.standardised import standardised
from tasks.domain.grpo.advantages.vpo import vpo
from tasks.domain.plugins import brought, pinned, plugged

Need = Literal["answers", "traces", "vectors", "candidates", "refinements", "agents", "visits"]


@dataclass(frozen=True, slots=True)
class Objective:
    """needs: of the rollouts (`answers`, `traces`: their classes, the latter by strategy; `vectors`: those of traces by
    the encoder, of problems with a right rollout), of how they come about (`candidates`: several answers each;
    `refinements`: draft, critique, refinement; `agents`: the critic is trained too, by an adapter of its own), of the
    steps before (`visits`). reads: settings that mean nothing to the others. of_parts: looks at correctness and form
    apart, so a group is dead only where both are alike; else where rewards are. trains_alike: a dead group may have an
    advantage; else it has none. least_group: rollouts; least_k: attempts; beyond_k: rollouts that k attempts must leave
    over. version: bumped when its advantages change; it stands in the names of the trainings that use it, from 2 on,
    and always where another package brings it, whose name and version it is."""

    advantage: Advantage
    needs: tuple[Need, ...] = ()
    reads: tuple[str, ...] = ()
    of_parts: bool = False
    least_group: int = 2
    least_k: int = 1
    beyond_k: int = 0
    trains_alike: bool = False
    version: int | str = 1


_K = ("advantage_k",)
_BONUS = ("bonus", "bonus_gate")
_SEVERAL = ("candidates",)

OWN: Mapping[str, Objective] = {
    "centred": Objective(centred),
    "standardised": Objective(standardised),
    "leave_one_out": Objective(leave_one_out),
    "max_rl": Objective(max_rl, of_parts=True, version=3),
    "pass_at_k": Objective(pass_at_k_training, reads=_K, of_parts=True, beyond_k=1, version=3),
    "pkpo": Objective(pkpo, reads=_K, of_parts=True, least_k=2, version=3),
    "best_alone": Objective(best_alone),
    "best_alone_standardised": Objective(best_alone_standardised),
    "entropic": Objective(entropic, of_parts=True, least_group=3, version=2),
    "darling_trace": Objective(darling.by_trace, ("traces",), of_parts=True, trains_alike=True, version=3),
    "darling_encoded": Objective(darling.by_trace, ("vectors",), of_parts=True, trains_alike=True),
    "darling_answer": Objective(darling.by_answer, ("answers",), of_parts=True, version=3),
    "ucb_mean": Objective(exploration.ucb_mean, ("answers", "visits"), _BONUS, trains_alike=True, version=2),
    "ucb_constant": Objective(
        exploration.ucb_constant, ("answers", "visits"), (*_BONUS, "bonus_baseline"), trains_alike=True, version=2
    ),
    "batch_exploration": Objective(exploration.batch, ("answers",), _BONUS, trains_alike=True, version=2),
    "reinforce_plus_plus": Objective(reinforce_plus_plus, trains_alike=True),
    "reinforce_plus_plus_baseline": Objective(with_baseline),
    "gdpo": Objective(gdpo, of_parts=True, version=3),
    "vpo": Objective(vpo, ("candidates",), _SEVERAL, of_parts=True, trains_alike=True),
    "multi_rlvr_sum": Objective(multi_rlvr.summed, ("candidates",), _SEVERAL, of_parts=True, trains_alike=True),
    "multi_rlvr_max": Objective(multi_rlvr.best, ("candidates",), _SEVERAL, of_parts=True, trains_alike=True),
    "refined": Objective(refined, ("refinements",), of_parts=True),
    "multi_agent": Objective(multi_agent, ("refinements", "agents"), of_parts=True),
}


class _Objectives(Mapping[str, Objective]):
    """What other packages bring is imported when it is asked for."""

    def __getitem__(self, name: str) -> Objective:
        if name in OWN:
            return OWN[name]
        if name not in brought("varband.objectives"):
            raise KeyError(name)
        found, version = plugged("varband.objectives", name), pinned("varband.objectives", name).partition("@")[2]
        named = f"{name} of {version}"
        if isinstance(found, Objective):
            return replace(found, advantage=held(found.advantage, named), version=version)
        if not callable(found):
            raise UserError(f"objective {named} is no function of a group and a context, nor an Objective")
        return Objective(held(found, named), version=version)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*OWN, *brought("varband.objectives")]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in OWN or name in brought("varband.objectives")


ADVANTAGES: Mapping[str, Objective] = _Objectives()


def group_advantages(group: Group, kind: str, context: Context) -> Advantages:
    """Advantages of one group and what the objective says of it; exactly zero where the group is dead, but for
    objectives that look beyond that.

    >>> alike = np.array([0.1] * 4)
    >>> group_advantages(Group(alike, alike), "standardised", Context())[0].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    objective = ADVANTAGES[kind]
    seen = (group.correct_G, group.form_G) if objective.of_parts else (group.rewards_G,)
    if not objective.trains_alike and not any(is_live(values_G.tolist()) for values_G in seen):
        return np.zeros_like(group.rewards_G), {}
    return objective.advantage(group, context)
