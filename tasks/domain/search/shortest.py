"""Best-of-n by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate
from tasks.domain.search.selection import Parallel, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortest(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The shortest rollout that gave an answer."""
        return highest(seen, lambda c: -c.num_tokens)
