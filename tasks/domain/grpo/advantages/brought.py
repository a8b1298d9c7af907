"""An objective of another package (`varband.objectives`), held to what it may return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.advantages.group import Advantage, Advantages, Candidate, Context, Group
from tasks.domain.plugins import told


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
