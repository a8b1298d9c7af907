"""Pieces of work on a Prefect pool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from flows.running import on_prefect
from flows.running.on_prefect import PrefectPool
from flows.running.pieces import Piece
from storage.artifacts.ref import Ref


def state(name: str) -> Any:
    answers = {"is_completed": name == "Completed", "is_crashed": name == "Crashed"}
    return SimpleNamespace(name=name, message="m", **{say: lambda value=value: value for say, value in answers.items()})


def test_a_piece_ends_as_its_run_does_and_one_of_a_lost_machine_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs in one request; `made` and `lost` end with the second."""
    names = ["made", "parked", "failed", "lost"]
    of = {name: UUID(int=nth) for nth, name in enumerate(names)}
    answers = [{"parked": "Parked", "failed": "Failed", "lost": "Crashed"}, {"made": "Completed", "lost": "Completed"}]
    requests = list[set[UUID]]()

    def read_flow_runs(flow_run_filter: Any, limit: int) -> list[Any]:
        requests.append(set(flow_run_filter.id.any_))
        return [SimpleNamespace(id=of[name], state=state(ended)) for name, ended in answers.pop(0).items()]

    client: Any = SimpleNamespace(read_flow_runs=read_flow_runs)
    monkeypatch.setattr(on_prefect, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(on_prefect, "GRACE_SECONDS", 0.0)
    again, told = list[str](), list[str]()
    monkeypatch.setattr(PrefectPool, "begin", lambda _, piece: again.append(piece.name))
    monkeypatch.setattr(PrefectPool, "_crashes", lambda *_: 1)
    pool = PrefectPool(client, "make", "run", "parent", lambda piece: {}, told.append)
    for name in names:
        piece = Piece(Ref("toy", f"{of[name].int:016x}"), name)
        pool._runs[piece.key] = piece, of[name]
    ended = list[tuple[str, str]]()
    while pool._runs:
        ended += [(piece.name, repr(error)) for piece, error in pool.ended()]
    assert dict(ended) == {"made": "None", "parked": "Parked('m')", "failed": "UserError('Failed: m')", "lost": "None"}
    assert again == ["lost"] and told == ["lost: its machine was lost, starting again"]
    assert requests == [set(of.values()), {of["made"], of["lost"]}]
