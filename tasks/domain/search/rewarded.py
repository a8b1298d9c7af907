"""Best-of-n by a reward model from a folder (Cobbe et al. 2021, arXiv 2110.14168)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate
from tasks.domain.search.selection import Parallel, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The answer of the highest score; what the model could not read comes last."""
        return highest(seen, lambda c: c.scores[-1] if c.scores else -1.0)

    @property
    def reward(self) -> str:
        return "outcome"
