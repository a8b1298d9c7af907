"""Every numeric setting says what it may be, and nothing else is taken."""

from __future__ import annotations

import pytest

from flows.study.profiles import DEMO
from flows.study.set_option import overridden
from storage.errors import UserError


@pytest.mark.parametrize(
    "setting",
    [
        "training.grad_clip=-1",
        "training.clip_high=-5.0",
        "training.learning_rate=-0.001",
        "training.kl_weight=1e999",
        "training.eps=-1.0",
        "training.betas=(1.5, 2.0)",
        "training.betas=(0.5,)",
        "training.max_tokens=-3",
        "training.max_tokens=2.5",
        "training.truncated=drop",
        "training.prompt_order=zzz",
        "training.loss=zzz",
        "training.loss=dr_grpo",
        "training.warmup_steps=41",
        "rollouts.top_p=0.0",
        "rollouts.max_tokens=0",
        "evaluation.group_size=0",
        "pool.on_issue=zzz",
        "hardware.max_num_seqs=-1",
        "hardware.memory_fraction=7",
        "hardware.memory_fraction=0",
        "hardware.max_model_len=0",
        "hardware.kv_cache_mb=-1",
        "hardware.tensor_parallel=0",
        "hardware.graphs_up_to=-8",
        "hardware.batch_size=0",
        "hardware.threads=0",
        "hardware.threads=1.5",
        "hardware.arms_at_once=0",
        "hardware.processes=-2",
        "hardware.token_budget=0",
        "hardware.checkpoint_every=0",
        "hardware.device=tpu",
        "hardware.engine=zzz",
        "hardware.dtype=int8",
        "hardware.adapters=zzz",
        "hardware.engine_process=zzz",
        "hardware.checkpointing=maybe",
    ],
)
def test_a_study_with_an_impossible_setting_is_not_planned(setting: str) -> None:
    path = setting.partition("=")[0]
    with pytest.raises(UserError, match=path.split(".")[1]) as error:
        overridden(DEMO, ["screening.group_size=16", setting])
    assert str(error.value).startswith((f"--set {path}: ", "training: learner: "))
    assert "\n" not in str(error.value)


def test_settings_that_go_together_are_taken_in_any_order() -> None:
    asked = ["training.warmup_steps=50", "training.steps=60", "training.minibatches=9", "training.groups_per_step=9"]
    for settings in (asked, asked[::-1]):
        training = overridden(DEMO, settings).training
        assert (training.warmup_steps, training.steps, training.minibatches) == (50, 60, 9)
    grpo = overridden(DEMO, ["training.loss=grpo", "training.advantage=standardised"]).training
    assert (grpo.loss, grpo.advantage) == ("grpo", "standardised")
