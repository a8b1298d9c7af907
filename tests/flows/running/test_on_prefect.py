"""Pieces of work on a Prefect pool."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.running import on_prefect
from flows.running.on_prefect import PARKED, TRIES, PrefectPool
from flows.running.pieces import Piece
from storage.artifacts.ref import Ref


def test_a_piece_ends_as_its_run_does_and_one_of_a_lost_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs in one request. The server starts `lost` again, and gives up `mute` and `gone`; `made` ends later."""
    at_first = {
        "parked": (Cancelled(name=PARKED, message="m"), 1),
        "failed": (Failed(message="m"), 1),
        "lost": (Crashed(message="m"), TRIES),
        "mute": (Crashed(message="m"), 0),
        "gone": (Crashed(message="m"), TRIES + 1),
    }
    answers = [at_first, {"made": (Completed(), 1), "lost": (Completed(), TRIES + 1)}]
    of = {name: UUID(int=nth) for nth, name in enumerate([*at_first, "made"])}
    requests = list[set[UUID]]()

    def read_flow_runs(flow_run_filter: Any, limit: int) -> list[Any]:
        requests.append(set(flow_run_filter.id.any_))
        found = answers.pop(0).items()
        return [SimpleNamespace(id=of[n], state=state, state_type=state.type, run_count=c) for n, (state, c) in found]

    monkeypatch.setattr(on_prefect, "POLL_SECONDS", 0.0)
    client: Any = SimpleNamespace(read_flow_runs=read_flow_runs)
    pool = PrefectPool(client, "make", "run", "parent", lambda piece: {}, print)
    for name, run in of.items():
        piece = Piece(Ref("toy", f"{run.int:016x}"), name)
        pool._runs[piece.key] = piece, run
    ended = dict[str, str]()
    while pool._runs:
        ended |= {piece.name: repr(error) for piece, error in pool.ended()}
    crashed = "UserError('Crashed: m')"
    failures = {"parked": "Parked('m')", "failed": "UserError('Failed: m')", "mute": crashed, "gone": crashed}
    assert ended == failures | {"made": "None", "lost": "None"}
    assert requests == [set(of.values()), {of["made"], of["lost"]}]
