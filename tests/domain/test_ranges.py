"""Every numeric setting says what it may be, and nothing else is taken."""

from __future__ import annotations

import pytest

from flows.study.profiles import DEMO
from flows.study.settings import overridden
from storage.errors import UserError


@pytest.mark.parametrize(
    "setting",
    [
        "training.grad_clip=-1",
        "training.kl_weight=1e999",
        "training.betas=(1.5, 2.0)",
        "training.betas=(0.5,)",
        "training.max_tokens=2.5",
        "training.truncated=drop",
        "training.loss=zzz",
        "training.loss=dr_grpo",
        "training.warmup_steps=41",
        "rollouts.top_p=0.0",
        "evaluation.group_size=0",
        "hardware.memory_fraction=7",
        "hardware.engine=zzz",
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
