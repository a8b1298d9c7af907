"""An arm that fails is reported at once, and the others go on: one after the other in a process, and on a pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from flows import arm as arms
from flows.running.pieces import Lost, dispatch
from flows.study.request import profile_named
from flows.study.resolve import resolve
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Notice, Parked, UserError
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception) -> list[str]:
    """Two arms, of which the panel meets this error in its lesson, screening or training; what the other made."""
    store, made = Store(tmp_path), list[str]()
    study = resolve(profile_named("demo"), store, model=None, encoder=None, data=None)

    def met(place: str, arm: str, result: Any) -> Any:
        if arm == "panel" and place == where:
            raise error
        made.append(f"{place} {arm}")
        return result

    start = SimpleNamespace(start=SimpleNamespace())
    monkeypatch.setattr(arms, "_taught", lambda _, __, head: met("lesson", head, None))
    monkeypatch.setattr(arms, "check_bases", lambda *_: None)
    monkeypatch.setattr(arms, "_screened", lambda _, __, arm, ___: met("screening", arm, start))
    monkeypatch.setattr(arms, "gate_of", lambda *_: None)
    monkeypatch.setattr(arms, "_live", lambda *_: None)
    monkeypatch.setattr(arms, "_start", lambda _, head, __: head)
    monkeypatch.setattr(arms, "_heldout", lambda _, __, ___, plans: dict.fromkeys(plans))
    monkeypatch.setattr(arms, "_measured", lambda *_: None)
    monkeypatch.setattr(arms, "_trained", lambda _, __, head, *___: met("training", head, None))
    monkeypatch.setattr(arms, "_evaluated_after", lambda *_: None)
    at: Any = SimpleNamespace(studied=SimpleNamespace(splits=None))
    with session(Session(store, Toolbox())), suppress(ArmsFailed, Parked):
        arms.make_arms(study, at)
    return made


@pytest.mark.parametrize("where", ["lesson", "screening", "training"])
def test_the_other_arm_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    with pytest.warns(Notice, match="^panel failed: RuntimeError: out of memory$"):
        made = make(tmp_path, monkeypatch, where, RuntimeError("out of memory"))
    assert {f"{place} thinking" for place in ("lesson", "screening", "training")} <= {*made}


def test_a_budget_limit_ends_the_run_where_it_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "training thinking" not in make(tmp_path, monkeypatch, "screening", Parked("no money is left"))


class Fake:
    """Workers whose pieces end at once, in the order in which they were begun."""

    def __init__(self, errors: dict[str, UserError]) -> None:
        self.errors, self.begun, self.under_way = errors, list[str](), list[Named]()

    def begin(self, piece: Named) -> None:
        self.begun.append(piece.name)
        self.under_way.append(piece)

    def ended(self) -> Iterator[tuple[Named, UserError | None]]:
        ended, self.under_way = self.under_way, []
        return iter([(piece, self.errors.get(piece.key)) for piece in ended])


class Named(NamedTuple):
    key: str

    @property
    def name(self) -> str:
        return self.key


@pytest.mark.parametrize(
    ("error", "raised", "begun"),
    [(UserError("no"), ArmsFailed, "a b b2"), (Parked("no"), Parked, "a b"), (Lost("no"), Parked, "a b b2")],
)
def test_pieces_of_which_one_fails(error: UserError, raised: type[Exception], begun: str) -> None:
    """A budget limit ends them all; what waits for a piece that failed is never begun."""
    workers, told, after = Fake({"a": error}), list[str](), {"a": "a2", "b": "b2"}

    def wanted(done: set[str]) -> list[Named]:
        keys = [*after, *(after[key] for key in after if key in done)]
        return [Named(key) for key in keys if key not in done]

    with pytest.raises(raised, match="no"):
        dispatch(wanted, workers, told.append)
    assert workers.begun == begun.split()
    assert type(error) is Parked or told == ["a failed: no"]
