"""A night among what cannot be looked at: each is said, the others are looked at, and a wall ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.server.deployed import _resolved
from flows.study.forms import StudyForm
from flows.upkeep import reeval
from flows.upkeep.reeval import Checked, _checked, reevaluate
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from tasks.metering import BudgetExceeded
from tests.flows.upkeep.test_reeval import KEPT, STUDY, store, uncharged
from tests.storage.records.test_garbage import recorded

__all__ = ["store"]  # the fixture


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
