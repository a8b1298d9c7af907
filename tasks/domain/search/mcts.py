"""Monte Carlo tree search over steps, as UCT (Kocsis and Szepesvári 2006): each round expands the beginning whose value
and whose uncertainty promise most; its scores stand for playing it to the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Annotated

from tasks.domain.ranges import Within
from tasks.domain.search.method import Candidate, Rounds
from tasks.domain.search.steps import StepSearch
from tasks.domain.search.widths import AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class MCTS(StepSearch):
    """simulations: beginnings that are expanded at most. expand: next steps of each. explore: weight of a beginning's
    uncertainty beside its value."""

    simulations: AtLeastOne = 16
    expand: AtLeastOne = 3
    explore: Annotated[float, Within(0)] = 1.4

    def rounds(self, question: str) -> Rounds:
        """The answer of the highest score among those that ended."""
        seen: Sequence[Candidate] = ()
        root = Place(None, 0)
        for _ in range(self.simulations):
            path = chosen(root, self.explore, self.depth)
            if not path:
                break
            leaf = path[-1]
            asks = [self.step(leaf.candidate, index) for index in range(self.expand)]
            new, seen = yield from self.grown(question, asks, seen)
            found = self.values(seen)
            leaf.below = [Place(c, leaf.depth + 1) for c in new]
            for place, c in zip(leaf.below, new, strict=True):
                for one in (*path, place):
                    one.visits += 1
                    one.total += found[c.name]
        return self.best(seen)

    @property
    def steps(self) -> int:
        return self.simulations * self.expand


@dataclass(slots=True)
class Place:
    """A beginning in the tree; the root has no candidate. below: null until it is expanded."""

    candidate: Candidate | None
    depth: int
    below: list[Place] | None = None
    visits: int = 0
    total: float = field(default=0.0)


def chosen(root: Place, explore: float, depth: int) -> list[Place]:
    """From the root to the place that is to be expanded next; empty where all that is left has ended."""
    if root.below is None:
        ended = root.depth >= depth or (root.candidate is not None and root.candidate.ended)
        return [] if ended else [root]
    open_ = [(place, rest) for place in root.below if (rest := chosen(place, explore, depth))]
    best = max(open_, key=lambda one: upper(one[0], root.visits, explore), default=None)
    return [root, *best[1]] if best else []


def upper(place: Place, visits: int, explore: float) -> float:
    """
    >>> upper(Place(None, 1, visits=4, total=2.0), 8, 0.0), upper(Place(None, 1), 8, 1.0)
    (0.5, inf)
    """
    if not place.visits:
        return inf
    return place.total / place.visits + explore * sqrt(log(visits) / place.visits)
