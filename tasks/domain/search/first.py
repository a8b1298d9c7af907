"""One rollout: what every other method is compared with. The others of its width are drawn for the lines of pass@1 and
of the oracle, which a measure takes from their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate
from tasks.domain.search.selection import Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class First(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The first rollout, whatever it says."""
        return seen[0] if seen else None
