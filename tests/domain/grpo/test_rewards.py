import pytest

from tasks.domain.grpo.rewards import reward


def test_what_costs_the_same_is_the_same_number() -> None:
    """-0.2 - 0.1 and -0.3 in floats are two, and a group of them would train on the last digit."""
    costs = {"correct": False, "tag_weight": 0.2, "max_tokens": 100, "overlong_cache": 10}
    broken = reward(tag_valid=False, num_tokens=91, **costs).total
    assert broken == reward(tag_valid=True, num_tokens=93, **costs).total == -0.3


def test_the_last_tokens_before_the_cap_cost_more_and_more() -> None:
    """Of 100 tokens the last 20 are the cache: nothing at 80, a quarter at 85, all at the cap; what is right stays so."""
    found = [
        reward(correct=True, tag_valid=False, tag_weight=0.2, num_tokens=n, max_tokens=100, overlong_cache=20)
        for n in (80, 85, 100)
    ]
    assert [r.length for r in found] == [0.0, -0.25, -1.0]
    assert [r.total for r in found] == pytest.approx([0.8, 0.55, -0.2]) and all(r.correct == 1 for r in found)
