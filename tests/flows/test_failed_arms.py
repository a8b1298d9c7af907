"""An arm that fails is reported at once, and the others go on: one after the other in a process, and on a pool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flows.arm import Attempts
from flows.running.pieces import Lost, Piece, dispatch
from storage.artifacts.ref import Ref
from storage.errors import ArmsFailed, Notice, Parked, UserError


def test_the_other_arms_are_made_and_the_failure_is_told_at_once() -> None:
    def make(arm: str) -> str:
        if arm == "panel":
            raise RuntimeError("out of memory")
        return arm

    attempts = Attempts()
    with pytest.warns(Notice, match="^panel failed: RuntimeError: out of memory$"):
        assert attempts.each(["panel", "thinking"], make) == {"thinking": "thinking"}
    with pytest.raises(ArmsFailed, match="1 of 2 arms failed: panel: RuntimeError: out of memory"):
        attempts.finish(["panel", "thinking"])


class Fake:
    """Workers whose pieces end at once, in the order in which they were begun."""

    def __init__(self, errors: dict[str, UserError]) -> None:
        self.errors, self.begun, self.under_way = errors, list[str](), list[Piece]()

    def begin(self, piece: Piece) -> None:
        self.begun.append(piece.name)
        self.under_way.append(piece)

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        ended, self.under_way = self.under_way, []
        return iter([(piece, self.errors.get(piece.name)) for piece in ended])


@pytest.mark.parametrize(
    ("error", "raised", "begun"),
    [(UserError("no"), ArmsFailed, "a b b2"), (Parked("no"), Parked, "a b"), (Lost("no"), Parked, "a b b2")],
)
def test_pieces_of_which_one_fails(error: UserError, raised: type[Exception], begun: str) -> None:
    """A budget limit ends them all; what waits for a piece that failed is never begun."""
    workers, told, after = Fake({"a": error}), list[str](), {"a": "a2", "b": "b2"}

    pieces = {name: Piece(Ref("toy", name[::-1].rjust(16, "0")), name) for name in ("a", "b", "a2", "b2")}

    def wanted(done: set[str]) -> list[Piece]:
        names = [*after, *(after[name] for name in after if pieces[name].key in done)]
        return [pieces[name] for name in names if pieces[name].key not in done]

    with pytest.raises(raised, match="no"):
        dispatch(wanted, workers, told.append)
    assert workers.begun == begun.split()
    assert type(error) is Parked or told == ["a failed: no"]
