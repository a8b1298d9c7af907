from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
rewards = st.lists(st.sampled_from([1.0, 0.8, 0.0, -0.2]), min_size=2, max_size=16)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"group_size": 1}, "group_size is 1"),
        ({"advantage": "zscore"}, "unknown advantage 'zscore'"),
        ({"advantage": "pkpo"}, r"pkpo is about 4 attempts \(advantage_k\) of 2"),
        ({"advantage": "pass_at_k", "advantage_k": 2}, "pass_at_k has nothing to learn from 2 attempts .* of 2"),
        ({"advantage": "pkpo", "advantage_k": 1}, "pkpo needs at least 2 attempts"),
        ({"advantage": "entropic"}, "entropic needs a group_size of 3, not 2"),
        ({"advantage": "ucb_mean", "bonus": 0.0}, "ucb_mean with a bonus of 0 is standardised"),
        ({"overlong_cache": 64}, "overlong_cache 64 counts back from max_tokens, which is None"),
        ({"overlong_cache": 64, "max_tokens": 64}, "set max_tokens to the longest completion, above it"),
        ({"cov_low": 6.0}, "cov_low 6 is not below cov_high 5"),
        ({"token_budget": 9, "staleness": 1}, "staleness has sampled the next one"),
        ({"bonus_gate": "wrong"}, "bonus_gate is 'wrong'; it must be 'right' or 'none'"),
        ({"entropy_target": 0.0}, "entropy_target is 0.0"),
        ({"target_modules": ()}, "target_modules is empty"),
        ({"lora_rank": 8, "expert_rank": 8}, "expert_rank is 8, which is not below lora_rank, 8"),
        ({"lora_rank": 8, "expert_rank": 4, "target_modules": ("q_proj",)}, "beside other layers; leave it out"),
        ({"lora_rank": 8, "expert_rank": 4, "target_modules": ("up_proj",)}, "expert_rank is 4 and target_modules up_"),
        ({"epochs": 0}, "epochs is 0"),
        ({"kl_weight": -0.1}, "kl_weight is -0.1"),
        ({"minibatches": 2}, "2 minibatches of 1 groups"),
        ({"warmup_steps": 2}, "warmup_steps is 2 of 1 steps; the full rate is never reached"),
        ({"lr_schedule": "step"}, "lr_schedule is 'step'; it must be 'constant', 'linear' or 'cosine'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        replace(CONFIG, **wrong)
