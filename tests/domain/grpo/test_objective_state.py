from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from tasks.domain.grpo.advantages.group import Group
from tasks.domain.grpo.credit import ObjectiveState
from tests.domain.grpo.test_types import CONFIG


def groups(*answers: str | None) -> list[Group]:
    nothing = np.zeros(len(answers))
    return [Group(nothing, nothing, "p", answers)]


def test_visits_are_counted_where_an_objective_asks_for_them() -> None:
    counting = replace(CONFIG, advantage="ucb_mean")
    once = ObjectiveState().after(groups("3", "3", None), 0.5, counting)
    twice = once.after(groups("3", "4"), 0.5, counting)
    assert once.visits == {"p": {"3": 2}} and twice.visits == {"p": {"3": 3, "4": 1}}
    assert ObjectiveState().after(groups("3"), 0.5, CONFIG).visits == {}


def test_the_entropy_weight_follows_its_target() -> None:
    """Up by delta below the target, down above it and then at rest, never under zero."""
    aimed = replace(CONFIG, entropy_weight=0.01, entropy_target=0.5, entropy_delta=0.004)
    state = ObjectiveState()
    assert state.entropy_weight(aimed) == 0.01
    weights = []
    for entropy in (0.4, 0.3, 0.6, None, 0.2):
        state = state.after([], entropy, aimed)
        weights.append(round(state.entropy_weight(aimed), 9))
    assert weights == [0.014, 0.018, 0.0, 0.0, 0.018]
    for _ in range(9):
        state = state.after([], 0.9, aimed)
    assert state.entropy_coefficient == 0.0


def test_a_state_survives_json_to_the_bit() -> None:
    state = ObjectiveState({"p": {"1/3": 2}}, entropy=0.1 + 0.2, entropy_coefficient=1 / 3)
    assert ObjectiveState.from_json(json.loads(json.dumps(state.as_json()))) == state
