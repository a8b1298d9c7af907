"""Beam search over steps (Snell et al. 2024, arXiv 2408.03314): the best beginnings are kept, and each goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate, Rounds
from tasks.domain.search.steps import StepSearch
from tasks.domain.search.widths import AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Beam(StepSearch):
    """beams: beginnings that are kept. expand: next steps of each."""

    beams: AtLeastOne = 4
    expand: AtLeastOne = 4

    def rounds(self, question: str) -> Rounds:
        """A beginning that has ended keeps its place among the beams."""
        seen: Sequence[Candidate] = ()
        asks, places = [self.step(None, index) for index in range(self.beams * self.expand)], self.beams
        for _ in range(self.depth):
            new, seen = yield from self.grown(question, asks, seen)
            found = self.values(seen)
            kept = sorted(new, key=lambda c: (-found[c.name], -c.likelihood))[:places]
            live = [c for c in kept if not c.ended]
            places = len(live)
            if not live:
                break
            asks = [self.step(c, index) for c in live for index in range(self.expand)]
        return self.best(seen)

    @property
    def steps(self) -> int:
        return self.beams * self.expand * self.depth
