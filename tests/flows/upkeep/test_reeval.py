"""The nightly re-evaluation: what opens a drift note, what closes it, and what costs nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from flows.running.sessions import Listener, unheard
from flows.server.deployed import _resolved
from flows.study.forms import StudyForm
from flows.study.profiles import DEMO
from flows.study.resolve import PoolInputs, Study
from flows.upkeep import reeval
from flows.upkeep.reeval import Checked, Kept, _checked, kept_adapters, reevaluate
from flows.upkeep.regrading import regrade_store
from storage.artifacts.kinds import LEDGER, Pool, Rollouts, Splits, Training
from storage.artifacts.manifest import Provenance, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.store import Payload, Store
from storage.errors import Parked, UserError
from storage.ledger import Ledger
from storage.records.decisions import put_overrides
from storage.records.drift import DriftNote, close_drift, drift_notes, note_drift
from tasks.domain.arms import ARMS
from tasks.domain.grading.grading import GRADER_VERSION, ActiveGrader
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.grading import active_grader
from tasks.metering import BudgetExceeded
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts, screen_adaptively
from tasks.stage import Session, session
from tests.stages.test_sampling import DRAW, GROUP, Lab, lab
from tests.stages.test_sampling import POLICY as LAB
from tests.storage.records.test_garbage import recorded

__all__ = ["lab"]  # the fixture

MODEL = BaseModel(name="demo", sha256="a" * 64)
TRAINING = Training.of("1" * 16)
POLICY = Policy(arm="panel", model=MODEL, adapter=str(TRAINING), step=40)
SAMPLING = Sampling(max_tokens=32, seed=3)
REFERENCE, POOL, TONIGHT = Rollouts.of("2" * 16), Pool.of("3" * 16), Rollouts.of("4" * 16)
STUDY = Study(DEMO, dict.fromkeys(ARMS, MODEL), {"": PoolInputs()}, "b" * 64, {})
PROVENANCE = Provenance(
    created="2026-01-01T00:00:00+00:00", seconds=0, code="x", python="3", packages={}, hardware="cpu", command="test"
)
KEPT = Kept(POLICY, TRAINING, REFERENCE, POOL, Splits.of("5" * 16), SAMPLING)


def rows(correct: list[bool], grader: str = GRADER_VERSION, engine: str = "old 1") -> pa.Table:
    """One rollout a problem."""
    values = {
        "problem_id": [f"p{i}" for i in range(len(correct))],
        "correct": correct,
        "grader_version": [grader] * len(correct),
        "engine": [engine] * len(correct),
    }
    columns = []
    for field in LEDGER:
        if field.name in values:
            columns.append(pa.array(values[field.name], field.type))
        elif pa.types.is_list(field.type):
            columns.append(pa.array([[1]] * len(correct), field.type))
        elif pa.types.is_string(field.type):
            columns.append(pa.array(["x"] * len(correct), field.type))
        else:
            columns.append(pa.array([0] * len(correct)).cast(field.type))
    return pa.table(columns, schema=LEDGER)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """20 held-out problems, 10 of them right, sampled by engine `old 1`."""
    at = Store(tmp_path)
    at.prepare()
    keep(at, REFERENCE, rows([i < 10 for i in range(20)]))
    Ledger(tmp_path).append(account_of(POLICY, SAMPLING), rows([i < 10 for i in range(20)]), {"arm": "panel"})
    return at


def keep(at: Store, ref: Ref, table: pa.Table) -> None:
    recipe = Recipe(stage="x", version=1, arguments={}, inputs={})
    at.write(ref, Payload(table.select(Rollouts.schema.names)), recipe, PROVENANCE)


def tonight(
    store: Store, monkeypatch: pytest.MonkeyPatch, engine: str, correct: list[bool] | None = None, study: Study = STUDY
) -> Checked:
    """What a night under this engine finds; `correct`: what it draws if it draws anew."""
    monkeypatch.setattr(reeval, "engine_now", lambda wanted: engine)
    if correct is None:
        monkeypatch.setattr(reeval, "_drawn_anew", lambda study, kept: pytest.fail("this night was to cost nothing"))
    else:
        keep(store, TONIGHT, rows(correct, engine=engine))
        monkeypatch.setattr(reeval, "_drawn_anew", lambda study, kept: TONIGHT)
    return reeval._compared(study, store, KEPT)


def test_a_night_on_which_nothing_changed_samples_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tonight(store, monkeypatch, "old 1")
    assert (found.state, found.tonight) == ("holds", 0.5)
    assert found.said == f"nothing changed: engine old 1, grader {GRADER_VERSION}"


def test_a_reference_whose_engine_is_forgotten_is_not_checked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it was compared with itself, and held."""
    shutil.rmtree(store.root / "ledger")
    found = tonight(store, monkeypatch, "old 1")
    assert (found.state, found.tonight) == ("unchecked", None)
    assert "which engine sampled it" in found.said


def test_a_new_engine_whose_figure_stays_in_its_interval_opens_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tonight(store, monkeypatch, "new 2", [i < 11 for i in range(20)])
    assert (found.state, found.said) == ("holds", "engine old 1 → new 2")
    assert drift_notes(store.root).num_rows == 0


def test_a_figure_outside_its_interval_opens_a_note_once_and_closes_it_when_it_is_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 of 20 right: the interval is about [0.3, 0.7]; 19 of 20 is outside."""
    found = tonight(store, monkeypatch, "new 2", [i < 19 for i in range(20)])
    assert (found.state, found.tonight) == ("drifted", 0.95)
    (note,) = drift_notes(store.root).to_pylist()
    assert (note["metric"], note["reference"], note["value"]) == ("accuracy", 0.5, 0.95)
    assert 0.2 < note["low"] < 0.4 and 0.6 < note["high"] < 0.8
    assert note["why"] == "engine old 1 → new 2" and note["open"]
    assert tonight(store, monkeypatch, "old 1").state == "holds"
    assert [n["open"] for n in drift_notes(store.root).to_pylist()] == [False]


def test_one_miss_of_an_adapter_that_solved_everything_is_inside(store: Store) -> None:
    """20 of 20 right is no certainty: a percentile bootstrap says [1, 1]."""
    keep(store, TONIGHT, rows([True] * 20))
    found = reeval._accuracy(store, TONIGHT)
    assert found.low < 0.95 < found.estimate == found.high == 1.0


def test_a_new_grader_that_changes_a_verdict_opens_a_note_without_sampling(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def regraded(*, rollouts: Ref, pool: Ref, grader: ActiveGrader) -> Ref:
        keep(store, TONIGHT, rows([i < 11 for i in range(20)], grader=grader.version))
        return TONIGHT

    monkeypatch.setattr(reeval, "regrade", regraded)
    found = tonight(store, monkeypatch, "old 1", study=replace(STUDY, grader=ActiveGrader("9-new")))
    assert (found.state, found.said) == ("drifted", f"grader {GRADER_VERSION} → 9-new")


def test_an_open_note_keeps_its_first_night(tmp_path: Path) -> None:
    figures = {"reference": 0.5, "low": 0.4, "high": 0.6, "value": 0.9, "rollouts": 20}

    def night(day: str) -> DriftNote:
        given = {"policy": "p", "metric": "accuracy", "why": "engine", "since": day, "last": day}
        return note_drift(tmp_path, DriftNote.model_validate(given | figures))

    night("2026-01-01")
    assert (night("2026-01-02").since, night("2026-01-03").last) == ("2026-01-01", "2026-01-03")
    close_drift(tmp_path, "p", "accuracy")
    assert night("2026-02-01").since == "2026-02-01", "a note that was closed opens anew"


def test_regrading_reaches_every_kind_of_sampled_rollouts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first problem is never solved, so an adaptive screening has its whole group too; now its answer counts."""
    with session(Session(lab.store, lab.toolbox)):
        made = [
            draw(pool=lab.pool, splits=lab.splits, policy=LAB, sampling=DRAW, group_size=GROUP)
            for draw in (sample_rollouts, screen_adaptively)
        ]

    def changed() -> dict[str, int]:
        monkeypatch.setattr(lab.toolbox, "grader", active_grader(lab.store.root))
        with session(Session(lab.store, lab.toolbox)):
            return {entry["rollouts"]: entry["changed"] for entry in regrade_store(lab.store).artifacts}

    assert changed() == {}
    first = lab.store.read(lab.pool).to_pylist()[0]
    put_overrides(
        lab.store.root,
        json.dumps(
            {"answer": "-12345", "gold": first["gold"], "verdict": "correct", "reason": "a misprint in the gold"}
        ),
    )
    assert changed() == {str(ref): GROUP for ref in made}


@contextmanager
def uncharged(_: Study) -> Iterator[Listener]:
    yield unheard


def test_without_a_finished_run_there_is_nothing_to_look_at(store: Store) -> None:
    assert list(reeval.reevaluate(store, [], uncharged)) == []


def test_an_evaluation_that_is_not_made_yet_is_said(store: Store) -> None:
    """The demo's adapters, of a store that has none of them: one row for each, at its last step."""
    found = list(kept_adapters(STUDY, store))
    assert {(c.state, c.said) for c in found if isinstance(c, Checked)} == {
        ("unchecked", "its evaluation is not made yet")
    }
    assert len(found) == len(STUDY.profile.arms) * len(STUDY.profile.seeds)


def test_a_run_whose_record_cannot_be_read_is_not_checked_and_said(store: Store) -> None:
    """Before, its adapters were in no table, and the night was green for the others."""
    recorded(store.root, "finished")
    (store.root / "runs" / "demo-00000001.json").write_text("{")
    (found,) = reevaluate(store, [], uncharged)
    assert (found.adapter, found.state) == ("adapters of demo-00000001", "unchecked") and "no run record" in found.said


def test_a_study_that_cannot_be_looked_at_keeps_no_other_from_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = _resolved(StudyForm(model=str(tmp_path / "no-model")), store)
    assert isinstance(lost, Checked) and lost.state == "unchecked" and "no-model" in lost.said
    found = list(reevaluate(store, [lost, STUDY], uncharged))
    assert found[0] is lost and len(found) == 1 + len(STUDY.profile.arms) * len(STUDY.profile.seeds)

    def unreadable(*_: object) -> None:
        raise UserError("its pool is damaged")

    monkeypatch.setattr(reeval, "kept_adapters", unreadable)
    assert [one.said for one in reevaluate(store, [STUDY, STUDY], uncharged)] == ["its pool is damaged"]


def test_a_wall_ends_the_night_and_is_no_missing_check(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of money, or of a server that stays away: it would meet every adapter after it, each after minutes."""

    def wall(*_: object) -> None:
        raise BudgetExceeded("the budget is spent")

    monkeypatch.setattr(reeval, "_compared", wall)
    with pytest.raises(Parked):
        _checked(STUDY, store, KEPT)
