"""What a study may ask of test-time search: refused in one sentence before work starts."""

from __future__ import annotations

import pytest

from flows.study.questions import PROFILES
from flows.study.resolve import overridden
from storage.errors import UserError

WRONG = {
    "search.methods=majorty": r"unknown method 'majorty'; did you mean 'majority'\?",
    "search.methods=majority:wide=3": r"method majority: no parameter 'wide' \(known: width\)",
    "search.methods=majority:width=0": r"method majority: .*width is 0; it must be at least 1",
    "search.methods=self_certainty": r"method self_certainty: it needs the whole distribution of every token",
    "search.methods=majority,majority": r"search.methods: majority stands there more than once",
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_method_that_cannot_be_served_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=WRONG[setting]) as raised:
        overridden(PROFILES["demo"], [setting])
    assert "\n" not in str(raised.value)


def test_a_budget_below_one_rollout_is_refused_with_numbers() -> None:
    with pytest.raises(UserError, match=r"search.tokens=128 is below one rollout, .* may take 128 tokens"):
        overridden(PROFILES["demo"], ["search.methods=majority", "search.tokens=128"])
    assert overridden(PROFILES["demo"], ["search.tokens=1"]).search.methods == ()  # nothing is searched


def test_budgets_are_halved_down_to_one_rollout() -> None:
    demo = overridden(PROFILES["demo"], ["search.methods=majority,early_stopped:width=32", "search.tokens=1600"])
    assert demo.search.methods == ("majority", "early_stopped:width=32")
    assert demo.search.budgets(demo.final.sampling.max_tokens) == (200, 400, 800, 1600)
