"""Every field of a study, given what it cannot be: one sentence before anything is made, however it is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from flows.running.plan import plan
from flows.study.profile import Profile
from flows.study.profiles import DEMO, QWEN_1_5B
from flows.study.request import Request, profile_of
from flows.study.resolve import resolve
from flows.study.set_option import overridden, settable
from storage.artifacts.store import Store
from storage.errors import UserError

NAMES = sorted(settable(DEMO))
TEXTS = ("-1", "0", "2.5", "1e999", "nan", "true", "none", "", "foo", "9" * 30, "1,1", "(0,0)", "a=b")
#: Of the published bad inputs those that were silent, hung, or ended in a traceback.
ONCE_SILENT = (
    "training.learning_rate=1e999",
    "training.learning_rate=-1",
    "training.betas=0.9",
    "rollouts.top_p=7",
    "rollouts.max_tokens=0",
    "passk.ks=0",
    "passk.ks=1,1",
    "seeds=0,0",
    "seeds=-1",
    "arms=panel,panel",
    "lessons=foo",
    "train_on=foo",
    "pool.on_issue=foo",
    "pool.limit=3",
    "pool.synthetic=1000000000",
    "training.steps=1000000000",
    "training.target_modules=foo",
    "encoder.windows=foo",
    "evaluation.sampling.max_tokens=512",
    "final.group_size=1000000000",
    "rollouts.seed=99999999999999999999999",
    "training.learning_rate=9e39",
    "training.weight_decay=9e39",
    "training.eps=0",
    "training.eps=1e-300",
    "training.kl_weight=9e39",
    "training.group_size=1000000000",
    "training.epochs=1000000000",
    "training.lora_rank=1000000000",
    "passk.ks=1000000000",
    "pool.heldout_per_source=0",
    "screening.group_size=1",
    "screening.sampling.temperature=0",
    "screening.sampling.temperature=1e-400",
    "encoder.max_tokens=513",
    "hardware.threads=1000000000",
    "hardware.max_num_seqs=1000000000",
)


def refused(call: Callable[[], object]) -> str:
    """What was said against it; empty where it was taken."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("setting", ONCE_SILENT)
def test_what_was_silent_or_late_is_refused_before_anything_is_made(setting: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=setting.partition("=")[0].rpartition(".")[2]):
        Request(profile="demo", settings=(setting,)).study(Store(tmp_path))
    assert not [*tmp_path.iterdir()]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example("arms", "\r0\n0")
@given(st.sampled_from(NAMES), st.sampled_from(TEXTS) | st.text(max_size=12))
def test_a_typed_value_is_taken_or_refused_in_a_sentence(name: str, text: str) -> None:
    assert "\n" not in refused(lambda: overridden(DEMO, [f"{name}={text}"]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES), st.sampled_from([-1, 0, 2.5, 10**30, True, "foo", [], [1, "a"], ["a", "a"]]))
def test_a_written_value_is_taken_or_refused_with_its_line(name: str, value: Any) -> None:
    text = f'base = "demo"\n{name} = {json.dumps(value)}\n'
    said = refused(lambda: profile_of("mine.toml", text))
    assert not said or (said.startswith("mine.toml") and "line 2" in said)


def numbers(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number that a study may hold, by its place in the schema."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield path, schema
        for name, part in schema.items():
            yield from numbers(part, f"{path}.{name}")
    elif isinstance(schema, list):
        for part in schema:
            yield from numbers(part, path)


def test_every_number_of_a_study_declares_its_range() -> None:
    found = list(numbers(TypeAdapter(Profile).json_schema()))
    assert len(found) > 60
    assert not [path for path, schema in found if not {"minimum", "exclusiveMinimum"} & {*schema}]


def test_a_large_study_is_planned_in_its_time(tmp_path: Path) -> None:
    """As many evaluations as are taken at all."""
    asked = ("training.steps=9990", "training.eval_every=10", "arms=panel", "evaluation.group_size=1")
    store = Store(tmp_path)
    assert len(plan(Request(profile="demo", settings=asked).study(store), store)) > 999


@pytest.mark.parametrize(
    "asked", [("screening.group_size=1", "train_on=all"), ("screening.sampling.temperature=0", "seeds=()")]
)
def test_a_screening_that_shows_no_gradient_is_taken_where_none_is_wanted(
    asked: tuple[str, ...], tmp_path: Path
) -> None:
    Request(profile="demo", settings=asked).study(Store(tmp_path))


@pytest.mark.parametrize(
    ("rows", "limit", "taken"), [(3, None, False), (25, None, False), (26, None, True), (99, 25, False)]
)
def test_problems_that_would_all_be_held_out_are_refused_by_plan_too(
    rows: int, limit: int | None, taken: bool, tmp_path: Path
) -> None:
    """demo holds out 25 problems of a source."""
    problems = tmp_path / "mine.jsonl"
    problems.write_text("".join(json.dumps({"problem": f"{i}+1?", "gold": str(i + 1)}) + "\n" for i in range(rows)))
    asked = Request(profile="demo", pools=(str(problems),), limit=limit)
    said = refused(lambda: asked.study(Store(tmp_path / "root"), planning=True))
    assert taken is not ("held out of" in said)


def test_what_is_missing_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARBAND_MODELS", str(tmp_path / "none"))
    with pytest.raises(UserError) as error:
        resolve(QWEN_1_5B, Store(tmp_path), model=None, encoder=None, data=tmp_path)
    for what in (QWEN_1_5B.model, QWEN_1_5B.encoder.name, "hmmt_feb_2024.jsonl", "gsm8k_train.jsonl", "math500.jsonl"):
        assert what in str(error.value)
