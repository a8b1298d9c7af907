"""An arm that fails is reported at once, and the others go on: one after the other in a process, and on a pool."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows import arm as arms
from flows.running import on_prefect as pool
from flows.running.on_prefect import Work, dispatch
from flows.study.request import profile_named
from flows.study.resolve import resolve
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Notice, Parked
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
    monkeypatch.setattr(arms, "_is_screened", lambda *_: True)
    monkeypatch.setattr(arms, "gate_of", lambda *_: None)
    monkeypatch.setattr(arms, "_live", lambda *_: None)
    monkeypatch.setattr(arms, "_start", lambda _, head, __: head)
    monkeypatch.setattr(arms, "_heldout", lambda _, __, ___, plans: dict.fromkeys(plans))
    monkeypatch.setattr(arms, "_measured", lambda *_: None)
    monkeypatch.setattr(arms, "_trained", lambda _, __, head, *___: met("training", head, None))
    monkeypatch.setattr(arms, "_evaluated_after", lambda *_: None)
    at: Any = SimpleNamespace(studied=SimpleNamespace(splits=None))
    with session(Session(store, Toolbox())), suppress(ArmsFailed, Parked):
        arms.make_arms(study, at, ["panel", "thinking"])
    return made


@pytest.mark.parametrize("where", ["lesson", "screening", "training"])
def test_the_other_arm_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    with pytest.warns(Notice, match="^panel failed: RuntimeError: out of memory$"):
        made = make(tmp_path, monkeypatch, where, RuntimeError("out of memory"))
    assert {f"{place} thinking" for place in ("lesson", "screening", "training")} <= {*made}


def test_a_budget_limit_ends_the_run_where_it_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "training thinking" not in make(tmp_path, monkeypatch, "screening", Parked("no money is left"))


class Server:
    """Runs that end at once, each in its state."""

    def __init__(self, ends: dict[str, str]) -> None:
        self.ends, self.begun = ends, list[str]()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self, _: object, __: str, work: Work, *___: object) -> str:
        self.begun.append(work.key)
        return work.key

    def read_flow_run(self, key: str) -> Any:
        name = self.ends.get(key, "Completed")
        state = SimpleNamespace(name=name, message=f"of {key}", is_final=lambda: True, is_crashed=lambda: False)
        state.is_completed = lambda: name == "Completed"
        return SimpleNamespace(state=state)


@pytest.mark.parametrize(("end", "kind", "begun"), [("Failed", ArmsFailed, "a b b2"), ("Parked", Parked, "a b")])
def test_on_a_pool(monkeypatch: pytest.MonkeyPatch, end: str, kind: type[Exception], begun: str) -> None:
    server, told = Server({"a": end}), list[str]()
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: server)
    monkeypatch.setattr(pool, "_attach", server.begin)
    after = {"a": "a2", "b": "b2"}

    def wanted(done: Any) -> list[Work]:
        keys = [key for key in after if key not in done] + [after[key] for key in after if key in done]
        return [Work(key, key, {}) for key in keys if key not in done]

    with pytest.raises(kind, match="of a"):
        dispatch("make/make", wanted, told.append, parent="p")
    assert server.begun == begun.split() and f"a: {end}: of a" in told
