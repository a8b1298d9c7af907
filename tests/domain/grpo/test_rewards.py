import pytest

from tasks.domain.grpo.rewards import Reward, reward


@pytest.mark.parametrize(
    ("correct", "tag_valid", "total"), [(True, True, 1.0), (True, False, 0.8), (False, True, 0.0), (False, False, -0.2)]
)
def test_the_published_reward(correct: bool, tag_valid: bool, total: float) -> None:
    assert reward(correct=correct, tag_valid=tag_valid, tag_weight=0.2).total == pytest.approx(total)


def test_parts_are_kept_apart() -> None:
    assert reward(correct=True, tag_valid=False, tag_weight=0.2) == Reward(correct=1.0, tag=-0.2)
