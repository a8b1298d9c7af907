"""An arm that fails is reported at once, and the others go on: one after the other in a process, and on a pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from flows.running.pieces import Lost, dispatch
from storage.errors import ArmsFailed, Notice, Parked, UserError
from tasks.attempts import Attempts


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


def test_a_budget_limit_ends_the_run_where_it_is_met() -> None:
    begun = list[str]()

    def make(arm: str) -> None:
        begun.append(arm)
        raise Parked("no money is left")

    with pytest.raises(Parked, match="no money"):
        Attempts().each(["panel", "thinking"], make)
    assert begun == ["panel"]


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
