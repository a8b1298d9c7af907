"""Majority voting, or self-consistency (Wang et al. 2022, arXiv 2203.11171)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate, answered
from tasks.domain.search.selection import Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The answer that most rollouts gave."""
        return most_voted(seen)


def votes(seen: Sequence[Candidate], weight: Callable[[Candidate], float] = lambda _: 1.0) -> dict[str, float]:
    """Answer → what its rollouts weigh together, in the order in which answers were first given."""
    found: dict[str, float] = {}
    for c in answered(seen):
        found[c.answer or ""] = found.get(c.answer or "", 0.0) + weight(c)
    return found


def most_voted(seen: Sequence[Candidate], weight: Callable[[Candidate], float] = lambda _: 1.0) -> Candidate | None:
    """The first candidate of the answer that weighs most; of equal ones the answer that was given first."""
    weighed = votes(seen, weight)
    if not weighed:
        return None
    best = max(weighed, key=weighed.__getitem__)
    return next(c for c in answered(seen) if c.answer == best)
