"""Best-of-n by likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate
from tasks.domain.search.selection import Parallel, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeliest(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The answer of the highest mean log-prob a token."""
        return highest(seen, lambda c: c.likelihood)
