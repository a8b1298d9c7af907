"""Every numeric setting says what it may be, and nothing else is taken."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.study.profiles import DEMO
from flows.study.settings import overridden
from flows.study.shape import Pool
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import Sampling
from tasks.domain.ranges import Within, declared

LEARNER = LearnerConfig(steps=9, groups_per_step=8, group_size=8, learning_rate=1e-3, lora_rank=4, lora_alpha=4)
RECORDS = (LEARNER, Sampling(max_tokens=8), DEMO.screening, DEMO.passk, DEMO.encoder, Pool(), DEMO, DEMO.hardware)


def numbers(hint: Any) -> list[Within | None]:
    """The range of each number within a field's type; None where one is not declared."""
    if get_origin(hint) is Annotated:
        return [limit for limit in get_args(hint) if isinstance(limit, Within)]
    if hint in (int, float):
        return [None]
    return [limit for part in get_args(hint) for limit in numbers(part)]


NUMERIC = [
    pytest.param(record, f.name, limit, id=f"{type(record).__name__}.{f.name}")
    for record in RECORDS
    for f in fields(record)  # a seed may be any number
    if not f.name.endswith(("seed", "seeds"))
    for limit in numbers(declared(type(record))[f.name])[:1]
]


def put(record: Any, name: str, value: object) -> Any:
    """A record with one number replaced, the first of several."""
    old = getattr(record, name)
    return replace(record, **{name: (value, *old[1:]) if isinstance(old, tuple) else value})


@pytest.mark.parametrize(("record", "name", "limit"), NUMERIC)
def test_a_number_outside_its_range_is_refused_in_a_sentence(record: Any, name: str, limit: Within | None) -> None:
    assert limit is not None, "no range is declared"
    beyond = [limit.least - 1, limit.most + 1, math.nan, math.inf, -math.inf, "3", True]
    beyond += [getattr(limit, limit.without)] if limit.without else []
    for value in beyond:
        with pytest.raises(UserError) as error:
            put(record, name, value)
        said = str(error.value)
        assert said.startswith(("learner: ", "hardware: ", f"{type(record).__name__}: "))
        assert f"{name} is " in said and repr(value) in said and str(limit) in said


@given(
    st.floats(), st.sampled_from([Within(1), Within(0, 1), Within(0, without="least"), Within(0, 1, without="most")])
)
def test_what_is_within(value: float, limit: Within) -> None:
    at_least = value > limit.least if limit.without == "least" else value >= limit.least
    at_most = value < limit.most if limit.without == "most" else value <= limit.most
    assert (value in limit) == (math.isfinite(value) and at_least and at_most)


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
    assert str(error.value).startswith((f"--set {path}: ", "learner: "))
    assert "\n" not in str(error.value)


def test_settings_that_go_together_are_taken_in_any_order() -> None:
    asked = ["training.warmup_steps=50", "training.steps=60", "training.minibatches=9", "training.groups_per_step=9"]
    for settings in (asked, asked[::-1]):
        training = overridden(DEMO, settings).training
        assert (training.warmup_steps, training.steps, training.minibatches) == (50, 60, 9)
    grpo = overridden(DEMO, ["training.loss=grpo", "training.advantage=standardised"]).training
    assert (grpo.loss, grpo.advantage) == ("grpo", "standardised")
