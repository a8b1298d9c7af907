"""Settings as `--set` has them: what each field takes, what is short for one, and what nothing reads."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flows.study.files import fields_of
from flows.study.profiles import DEMO, PROFILES, QWEN_1_5B
from flows.study.reading import flat
from flows.study.request import profile_of
from flows.study.resolve import resolve
from flows.study.settings import listed, overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import LOSSES

NAMES = sorted(path for path, _ in flat(fields_of(DEMO)))
TEXTS = ("-1", "0", "2.5", "1e999", "nan", "true", "none", "", "foo", "9" * 30, "1,1", "(0,0)", "a=b")


def refused(call: Callable[[], object]) -> str:
    """What was said against it; empty where it was taken."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example("arms", "\r0\n0")
@given(st.sampled_from(NAMES), st.sampled_from(TEXTS) | st.text(max_size=12))
def test_a_typed_value_is_taken_or_refused_in_a_sentence(name: str, text: str) -> None:
    assert all(": " in line for line in refused(lambda: overridden(DEMO, [f"{name}={text}"])).splitlines())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES), st.sampled_from([-1, 0, 2.5, 10**30, True, "foo", [], [1, "a"], ["a", "a"]]))
def test_a_written_value_is_taken_or_refused_with_its_line(name: str, value: Any) -> None:
    said = refused(lambda: profile_of("mine.toml", f'base = "demo"\n{name} = {json.dumps(value)}\n'))
    assert all(line.startswith("mine.toml, line 2: ") for line in said.splitlines())


def test_a_setting_is_taken_where_one_of_the_compared_objectives_reads_it() -> None:
    changed = overridden(PROFILES["demo/objectives"], ["training.bonus=0.3"])
    assert {one.training.bonus for one in changed.objectives} == {0.3}
    assert overridden(DEMO, ["training.advantage=pkpo", "training.advantage_k=2"]).training.advantage_k == 2
    names = {field.name for field in fields(LearnerConfig)}
    assert {name for one in (*LOSSES.values(), *ADVANTAGES.values()) for name in one.reads} <= names


def test_what_is_missing_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARBAND_MODELS", str(tmp_path / "none"))
    with pytest.raises(UserError) as error:
        resolve(QWEN_1_5B, Store(tmp_path), data=tmp_path)
    for what in (QWEN_1_5B.model, QWEN_1_5B.encoder.name, "hmmt_feb_2024.jsonl", "gsm8k_train.jsonl", "math500.jsonl"):
        assert what in str(error.value)


def test_every_setting_is_listed_with_its_meaning() -> None:
    """`varband study settings` and the docs' page are views of the fields: none is missing, none has no words."""
    by_name = {name: one for one in listed() for name in one.names}
    assert not [name for name, one in by_name.items() if not one.meaning]
    assert {*NAMES} <= {*by_name}
    assert by_name["training.learning_rate"].values == "number, at least 0, at most 1"
    assert by_name["final.sampling.temperature"].default == "1"
