"""Updates in which nothing has an advantage, though something pulls at every rollout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped, policy_of
from tests.engines.learning.test_updates import sampled_by


@pytest.mark.parametrize("loss", ["clip_cov", "kl_cov"])
@pytest.mark.parametrize("pull", [{"kl_weight": 0.1}, {"entropy_weight": 0.1}, {"entropy_target": 9.0}])
def test_a_minibatch_of_dead_groups_weighs_no_token_and_is_held_all_the_same(
    tiny_base: Path, loss: str, pull: dict[str, Any]
) -> None:
    """Another minibatch of the step has a live group."""
    config = replace(CONFIG, loss=loss, advantage="standardised", minibatches=3, **pull)
    rollouts = [
        replace(r, correct=r.problem_id == "a" and r.rollout < 2, tag_valid=True)
        for r in random_rollouts(PROBLEMS, 4, seed=3)
    ]
    policy = policy_of(tiny_base, config)
    updater = Updater(policy, config, 8192)
    updater.start_here()
    row = updater.update(grouped(sampled_by(policy, rollouts, noise=0.0)), Clock())
    assert row["updates"] == 3 and row["trained_tokens"] == sum(len(r.token_ids) for r in rollouts)
