"""A run under a Prefect server: pieces that end, answers that come twice, and a server that dies."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from flows.running import on_prefect
from flows.running.on_prefect import PrefectPool, _as_flow
from flows.running.pieces import Piece
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.records.runs import all_runs
from tests.servers import SHRUNK, end, prefect_server


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


@pytest.mark.slow
def test_what_an_arm_made_is_had_whatever_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite was locked for a minute, and a request was sent again: the run failed, though the arm was screened."""
    from prefect.client.base import PrefectHttpxSyncClient
    from prefect.testing.utilities import prefect_test_harness

    once = PrefectHttpxSyncClient.send

    def twice(client: Any, request: Any, *rest: Any, **how: Any) -> Any:
        if request.url.path.endswith("/set_state"):
            once(client, request, *rest, **how)
        return once(client, request, *rest, **how)

    with prefect_test_harness(server_startup_timeout=300):
        monkeypatch.setattr(PrefectHttpxSyncClient, "send", twice)
        assert _as_flow("screen panel", lambda: 7, "demo") == 7


@pytest.mark.slow
@pytest.mark.chaos
def test_a_run_whose_server_dies_finishes(tmp_path: Path) -> None:
    wishes = [word for field, value in SHRUNK.items() for word in ("--set", f"{field}={value}")]
    words = ["run", "demo", "--arms", "panel", "--engine", "transformers", *wishes]
    with prefect_server(tmp_path) as server:
        run = server.spawn(["-c", "from cli.main import main; main()", *words], "log", PREFECT_LOGGING_LEVEL="CRITICAL")
        log, until = tmp_path / "log", time.monotonic() + 400
        while not any(found.at == "train panel seed 0" for found in all_runs(server.root)):
            assert run.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.1)
        end(server.process)
        assert run.wait(400) == 0, log.read_text()[-3000:]
        (record,) = all_runs(server.root)
        assert record.state == "finished" and len(Store(server.root).refs("report")) == 1
        assert "Traceback" not in log.read_text()
