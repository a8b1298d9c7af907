"""Majority voting in which a rollout weighs what its likelihood or its shortness says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.domain.search.majority import most_voted
from tasks.domain.search.method import Candidate
from tasks.domain.search.selection import Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMajority(Parallel):
    """by: `likelihood`, the geometric mean of its tokens' probabilities, or `length`, one over its tokens."""

    by: Literal["likelihood", "length"] = "likelihood"

    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        return most_voted(seen, likely if self.by == "likelihood" else short)


def likely(candidate: Candidate) -> float:
    return math.exp(candidate.likelihood)


def short(candidate: Candidate) -> float:
    return 1.0 / max(candidate.num_tokens, 1)
