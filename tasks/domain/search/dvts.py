"""Diverse verifier tree search (Beeching, Tunstall and Rush 2024, search-and-learn): beams that do not compete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate, Rounds
from tasks.domain.search.steps import StepSearch
from tasks.domain.search.widths import AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class DVTS(StepSearch):
    """trees: independent of one another. expand: next steps of each tree, of which it goes on with the best."""

    trees: AtLeastOne = 4
    expand: AtLeastOne = 4

    def rounds(self, question: str) -> Rounds:
        """The best of what all trees ended with."""
        seen: Sequence[Candidate] = ()
        asks = [[self.step(None, tree * self.expand + i) for i in range(self.expand)] for tree in range(self.trees)]
        for _ in range(self.depth):
            new, seen = yield from self.grown(question, [ask for tree in asks for ask in tree], seen)
            found, came = self.values(seen), {c.ask: c for c in new}
            asks, before = [], asks
            for tree in before:
                grown = [came[ask] for ask in tree if ask in came]
                best = max(grown, key=lambda c: (found[c.name], c.likelihood), default=None)
                if best is not None and not best.ended:
                    asks.append([self.step(best, index) for index in range(self.expand)])
            if not asks:
                break
        return self.best(seen)

    @property
    def steps(self) -> int:
        return self.trees * self.expand * self.depth
