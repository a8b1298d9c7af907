"""Objectives by the names used in profiles: the built-in ones, and plug-ins (entry point `varband.objectives`)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.advantages import baselines, best_of_k, exploration, structured
from tasks.domain.grpo.advantages.group import Advantage, Advantages, Candidate, Context, Group, is_live
from tasks.domain.plugins import Registry, error_line


def checked(advantage: Advantage, name: str) -> Advantage:
    """Wrap another package's objective. Raise UserError if the objective raises or returns anything but advantages."""

    def call(group: Group, context: Context) -> Advantages:
        try:
            advantages, diagnostics = advantage(group, context)
            advantages_G = np.asarray(advantages, dtype=np.float64)
            numbers = {str(key): float(value) for key, value in diagnostics.items()}
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # another package's code may raise anything
            raise UserError(
                f"objective {name} raised {error_line(error)} for the rewards {group.rewards_G.tolist()!r:.80}"
            ) from None
        if advantages_G.shape != group.rewards_G.shape or not np.isfinite([*advantages_G, *numbers.values()]).all():
            raise UserError(
                f"objective {name} must return one finite number per rollout, not {advantages_G.tolist()!r:.80}"
            )
        return advantages_G, numbers

    return call


def made_up(size: int) -> Group:
    """Return an invented group, half of it correct, with all inputs of objectives, to try one before sampling."""
    right_G = (np.arange(size) % 2).astype(np.float64)
    ways = [n % 3 for n in range(size)]
    candidates = [(Candidate(bool(right), 1), Candidate(not right, 2)) for right in right_G]
    several: dict[str, Any] = {"candidates": tuple(candidates), "of_right_drafts": tuple(right_G > 0)}
    lengths = tuple(range(1, size + 1))
    return Group(right_G + 0.1, right_G, "made up", tuple(map(str, ways)), tuple(ways), **several, lengths=lengths)


Need = Literal["answers", "traces", "vectors", "candidates", "refinements", "agents", "visits"]


@dataclass(frozen=True, slots=True)
class Objective:
    """An advantage function and its requirements.

    - needs: inputs from the rollouts: `answers` and `traces` (their classes; those of traces are strategies), or
      `vectors` (embeddings of traces, for problems with a correct rollout). Inputs from another way of sampling:
      `candidates` (several answers in a completion), `refinements` (draft, critique, refinement), `agents` (the same,
      and the critic is trained too, with its own adapter). From earlier steps: `visits`.
    - reads: settings that only this objective uses.
    - of_parts: treats correctness and format separately, so a group is dead only if both are constant. Otherwise a
      group is dead if its total rewards are constant.
    - trains_alike: a dead group may have an advantage.
    - least_group: minimum rollouts; least_k: minimum attempts; beyond_k: minimum rollouts beyond k.
    - version: increased when the advantages change. It enters the recipe of trainings that use the objective, from 2
      on; for another package's objective always, with its name and version.
    """

    advantage: Advantage
    needs: tuple[Need, ...] = ()
    reads: tuple[str, ...] = ()
    of_parts: bool = False
    least_group: int = 2
    least_k: int = 1
    beyond_k: int = 0
    trains_alike: bool = False
    version: int | str = 1


_ANSWERS: tuple[Need, ...] = ("answers",)
_VISITS: tuple[Need, ...] = ("answers", "visits")
_K: dict[str, Any] = {"reads": ("advantage_k",), "of_parts": True, "version": 3}
_BONUS: dict[str, Any] = {"reads": ("bonus", "bonus_gate"), "trains_alike": True, "version": 2}
_OF_BASELINE: dict[str, Any] = _BONUS | {"reads": ("bonus", "bonus_gate", "bonus_baseline")}
_SEVERAL: dict[str, Any] = {"needs": ("candidates",), "reads": ("candidates",), "of_parts": True, "trains_alike": True}

OWN: Mapping[str, Objective] = {
    "centred": Objective(baselines.centred),
    "standardised": Objective(baselines.standardised),
    "leave_one_out": Objective(baselines.leave_one_out),
    "max_rl": Objective(baselines.max_rl, of_parts=True, version=3),
    "pass_at_k": Objective(best_of_k.pass_at_k_training, beyond_k=1, **_K),
    "pkpo": Objective(best_of_k.pkpo, least_k=2, **_K),
    "best_alone": Objective(best_of_k.best_alone),
    "best_alone_standardised": Objective(best_of_k.best_alone_standardised),
    "entropic": Objective(best_of_k.entropic, of_parts=True, least_group=3, version=2),
    "darling_trace": Objective(exploration.by_trace, ("traces",), of_parts=True, trains_alike=True, version=3),
    "darling_encoded": Objective(exploration.by_trace, ("vectors",), of_parts=True, trains_alike=True),
    "darling_answer": Objective(exploration.by_answer, _ANSWERS, of_parts=True, version=3),
    "ucb_mean": Objective(exploration.ucb_mean, _VISITS, **_BONUS),
    "ucb_constant": Objective(exploration.ucb_constant, _VISITS, **_OF_BASELINE),
    "batch_exploration": Objective(exploration.batch, _ANSWERS, **_BONUS),
    "reinforce_plus_plus": Objective(baselines.reinforce_plus_plus, trains_alike=True),
    "reinforce_plus_plus_baseline": Objective(baselines.with_baseline),
    "gdpo": Objective(baselines.gdpo, of_parts=True, version=3),
    "vpo": Objective(structured.vpo, **_SEVERAL),
    "multi_rlvr_sum": Objective(structured.summed, **_SEVERAL),
    "multi_rlvr_max": Objective(structured.best, **_SEVERAL),
    "refined": Objective(structured.refined, ("refinements",), of_parts=True),
    "multi_agent": Objective(structured.multi_agent, ("refinements", "agents"), of_parts=True),
}


def _of_package(found: object, name: str, version: str) -> Objective:
    objective = found if isinstance(found, Objective) else Objective(found)  # type: ignore[arg-type]
    return replace(objective, advantage=checked(objective.advantage, f"{name} of {version}"), version=version)


ADVANTAGES = Registry("varband.objectives", OWN, _of_package)


def group_advantages(group: Group, kind: str, context: Context) -> Advantages:
    """Return (advantages of one group, diagnostics of the objective). The advantages of a dead group are exactly zero,
    except with objectives that compare groups.

    >>> alike = np.array([0.1] * 4)
    >>> group_advantages(Group(alike, alike), "standardised", Context())[0].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    objective = ADVANTAGES[kind]
    seen = (group.correct_G, group.form_G) if objective.of_parts else (group.rewards_G,)
    if not objective.trains_alike and not any(is_live(values_G.tolist()) for values_G in seen):
        return np.zeros_like(group.rewards_G), {}
    return objective.advantage(group, context)
