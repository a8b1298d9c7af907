from __future__ import annotations

from dataclasses import replace

import pytest

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig, check_overlong
from tasks.domain.policies import Sampling

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"group_size": 1}, "group_size is 1"),
        ({"advantage": "zscore"}, "unknown advantage 'zscore'"),
        ({"advantage": "pkpo"}, r"pkpo is about 4 attempts \(advantage_k\) of 2"),
        ({"advantage": "pass_at_k", "advantage_k": 2}, "pass_at_k has nothing to learn from 2 attempts .* of 2"),
        ({"advantage": "pkpo", "advantage_k": 1}, "pkpo needs at least 2 attempts"),
        ({"advantage": "entropic"}, "entropic needs a group_size of 3, not 2"),
        ({"advantage": "ucb_mean", "bonus": 0.0}, "ucb_mean with a bonus of 0 is standardised"),
        ({"overlong_cache": 64, "max_tokens": 64}, "set max_tokens to the longest completion, above it"),
        ({"cov_low": 6.0}, "cov_low 6 is not below cov_high 5"),
        ({"token_budget": 9, "staleness": 1}, "staleness has sampled the next one"),
        ({"token_budget": 9, "lr_schedule": "linear"}, "lr_schedule=linear falls by steps"),
        ({"target_modules": ()}, "target_modules is"),
        ({"lora_rank": 8, "expert_rank": 8}, "expert_rank is 8, which is not below lora_rank, 8"),
        ({"lora_rank": 8, "expert_rank": 4, "target_modules": ("q_proj",)}, "beside other layers; leave it out"),
        ({"minibatches": 2}, "2 minibatches of 1 groups"),
        ({"warmup_steps": 2}, "warmup_steps is 2 of 1 steps"),
    ],
)
def test_settings_that_cannot_stand_together_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **wrong)


def test_a_punishment_that_no_completion_reaches_is_refused() -> None:
    """It begins after 80 tokens; a cap of 81 reaches it."""
    punished = replace(CONFIG, max_tokens=100, overlong_cache=20)
    check_overlong(punished, Sampling(max_tokens=81))
    with pytest.raises(UserError, match="begins after 80 tokens, and rollouts end at 80"):
        check_overlong(punished, Sampling(max_tokens=80))
