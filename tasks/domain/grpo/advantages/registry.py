"""Objectives by the names that a profile gives them: ours, and those of other packages (`varband.objectives`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.advantages import candidates, exploration
from tasks.domain.grpo.advantages.baselines import (
    centred,
    gdpo,
    leave_one_out,
    max_rl,
    reinforce_plus_plus,
    standardised,
    with_baseline,
)
from tasks.domain.grpo.advantages.best_of_k import (
    best_alone,
    best_alone_standardised,
    entropic,
    pass_at_k_training,
    pkpo,
)
from tasks.domain.grpo.advantages.dialogue import multi_agent, refined
from tasks.domain.grpo.advantages.group import Advantage, Advantages, Candidate, Context, Group, is_live
from tasks.domain.plugins import brought, pinned, plugged, told


def held(advantage: Advantage, name: str) -> Advantage:
    """Errors: UserError, when it is called, if it raises or returns no finite advantage for each rollout; it is shown
    rewards that it cannot write to."""

    def called(group: Group, context: Context) -> Advantages:
        shown = replace(group, rewards_G=_kept(group.rewards_G), correct_G=_kept(group.correct_G))
        try:
            found: Any = advantage(shown, context)
            advantages_G, diagnostics = found
            advantages_G = np.asarray(advantages_G, dtype=np.float64)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # code of others may raise anything
            raise UserError(f"objective {name} raises {told(error)} on a group of {_of(group)}") from None
        if advantages_G.shape != group.rewards_G.shape or not np.isfinite(advantages_G).all():
            raise UserError(
                f"objective {name} returned {advantages_G.tolist()!r:.80} for a group of {_of(group)}: it must be one"
                " finite number a rollout"
            )
        if not isinstance(diagnostics, Mapping) or not all(map(_is_number, diagnostics.values())):
            raise UserError(f"objective {name} returned {diagnostics!r:.80} beside its advantages, not numbers by name")
        return advantages_G, diagnostics

    return called


def made_up(size: int) -> Group:
    """A group with all that any objective may ask for, of which half is right: what one is tried on before anything is
    sampled for it."""
    right_G = (np.arange(size) % 2).astype(np.float64)
    ways = [n % 3 for n in range(size)]
    candidates = [(Candidate(bool(right), 1), Candidate(not right, 2)) for right in right_G]
    return Group(
        right_G + 0.1, right_G, "made up", tuple(map(str, ways)), tuple(ways), tuple(candidates), tuple(right_G > 0)
    )


def _kept(values_G: np.ndarray) -> np.ndarray:
    kept_G = values_G.copy()
    kept_G.flags.writeable = False
    return kept_G


def _of(group: Group) -> str:
    return f"rewards {', '.join(f'{reward:.3g}' for reward in group.rewards_G)}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


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
    "darling_trace": Objective(exploration.by_trace, ("traces",), of_parts=True, trains_alike=True, version=3),
    "darling_encoded": Objective(exploration.by_trace, ("vectors",), of_parts=True, trains_alike=True),
    "darling_answer": Objective(exploration.by_answer, ("answers",), of_parts=True, version=3),
    "ucb_mean": Objective(exploration.ucb_mean, ("answers", "visits"), _BONUS, trains_alike=True, version=2),
    "ucb_constant": Objective(
        exploration.ucb_constant, ("answers", "visits"), (*_BONUS, "bonus_baseline"), trains_alike=True, version=2
    ),
    "batch_exploration": Objective(exploration.batch, ("answers",), _BONUS, trains_alike=True, version=2),
    "reinforce_plus_plus": Objective(reinforce_plus_plus, trains_alike=True),
    "reinforce_plus_plus_baseline": Objective(with_baseline),
    "gdpo": Objective(gdpo, of_parts=True, version=3),
    "vpo": Objective(candidates.vpo, ("candidates",), _SEVERAL, of_parts=True, trains_alike=True),
    "multi_rlvr_sum": Objective(candidates.summed, ("candidates",), _SEVERAL, of_parts=True, trains_alike=True),
    "multi_rlvr_max": Objective(candidates.best, ("candidates",), _SEVERAL, of_parts=True, trains_alike=True),
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
