"""The gate: nothing is trained before every arm that trains is screened, nor where training could not teach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flows.artifacts import Screened, Start
from flows.gate import ADVICE, why_closed
from flows.study.profiles import DEMO, PAPER
from storage.artifacts.kinds import Bands, Rollouts, Splits
from storage.artifacts.store import Store
from storage.errors import Parked
from tasks.domain.gate import Gate
from tasks.domain.policies import Policy
from tasks.engines.toolbox import Toolbox
from tasks.measures.bands import bands_of
from tasks.stage import Session
from tests.dashboards.synthetic import put
from tests.flows.running.test_plan import MODEL, study_of
from tests.flows.test_dag import planned
from tests.measures.conftest import rows_of

TAUGHT = replace(DEMO, lessons=(replace(PAPER.lessons[0], pool=DEMO.pool),))


def screened(store: Store, arm: str, groups: dict[str, str], adapter: str | None, ending: str = "x") -> Screened:
    rows = rows_of(groups, arm=arm)
    invalid = pa.array([ending == "x"] * rows.num_rows)
    rows = rows.set_column(rows.schema.get_field_index("tag_valid"), rows.schema.field("tag_valid"), invalid)
    rows = rows.set_column(
        rows.schema.get_field_index("completion"), rows.schema.field("completion"), pa.array([ending] * rows.num_rows)
    )
    rollouts, bands = put(store, Rollouts, rows, about=arm), put(store, Bands, bands_of(rows), about=arm)
    policy = Policy(arm=arm, model=MODEL, scaffold=DEMO.arm(arm).scaffold, adapter=adapter)
    return Screened(arm, Start(policy), rollouts, bands, bands)


def test_trainings_wait_for_the_screening_of_every_arm_and_lessons_do_not(tmp_path: Path) -> None:
    steps = planned(tmp_path, TAUGHT)
    trainings = {step.title: step for step in steps if step.ref.kind == "training"}
    screens = {step.ref for step in steps if step.title in ("screen panel", "screen thinking")}
    assert len(screens) == 2
    for title in ("train panel seed 0", "train thinking seed 0"):
        assert screens <= set(trainings[title].awaited)
    assert trainings["lesson gsm8k for panel"].condition is None
    anyway = planned(tmp_path, replace(TAUGHT, gate=Gate(anyway=True)))
    assert not any(step.condition for step in anyway)
    assert [step.ref for step in anyway] == [step.ref for step in steps]  # of no name


def test_a_closed_gate_says_why_with_the_ends_of_completions(tmp_path: Path) -> None:
    study, store = study_of(DEMO, tmp_path), Store(tmp_path / "store")
    store.prepare()
    groups = {"p": "cwww", "q": "cccc", "held": "cwww"}
    rows = {"problem_id": [*groups], "source": ["amc"] * 3, "split": ["train", "train", "heldout"]}
    splits = put(store, Splits, pa.table(rows).cast(Splits.schema))
    sound = screened(store, "panel", groups, "training-1")
    assert why_closed(study, splits, [sound], store) == ""
    mute = screened(store, "thinking", groups | {"p": "wwww"}, None, "it goes\non and on")
    said = why_closed(study, splits, [sound, mute], store)
    assert "100 % of the rollouts of thinking have no valid tags (at most 50 %)" in said
    assert "no training problem of thinking gives a gradient" in said  # one that is held out is none
    assert "thinking starts without a lesson, and panel had one" in said
    assert said.count("thinking «…it goes on and on»") == 3 and said.endswith(ADVICE)
    on_all = replace(study, profile=replace(DEMO, train_on="all"))
    assert "no training problem of thinking" in why_closed(on_all, splits, [sound, mute], store)
    assert why_closed(on_all, splits, [sound], store) == ""
    strict = replace(study, profile=replace(DEMO, gate=Gate(least_accuracy=0.2, most_accuracy=0.4)))
    assert "the mean accuracy of panel is 50 % (within 20 % to 40 %)" in why_closed(strict, splits, [sound], store)


def test_what_may_not_be_made_is_not(tmp_path: Path) -> None:
    training = next(step for step in planned(tmp_path, DEMO) if step.title == "train panel seed 0")
    assert training.condition is not None
    closed = replace(training, condition=replace(training.condition, why_not=lambda store: "it teaches nothing"))
    with pytest.raises(Parked, match="it teaches nothing"):
        Session(Store(tmp_path), Toolbox()).ensure(closed)
