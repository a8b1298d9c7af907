"""Best-of-n by self-certainty (Kang, Zhao and Song 2025, arXiv 2502.18581): the mean divergence of each token's
distribution from the uniform one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import CERTAINTY, Candidate
from tasks.domain.search.selection import Parallel, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCertainty(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The answer of the highest self-certainty."""
        return highest(seen, lambda c: c.scores[-1] if c.scores else 0.0)

    @property
    def reward(self) -> str:
        return CERTAINTY
