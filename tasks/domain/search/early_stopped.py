"""Majority voting that stops once the leader is sure: adaptive consistency (Aggarwal et al. 2023, arXiv 2305.11860)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from tasks.domain.search.majority import most_voted, votes
from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds
from tasks.domain.search.widths import AtLeastOne, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopped(Method):
    """width: rollouts at most. sure_at: chance at which the leader counts as the majority's answer."""

    width: AtLeastOne = 16
    sure_at: Share = 0.95

    def rounds(self, question: str) -> Rounds:
        seen: Sequence[Candidate] = ()
        for index in range(self.width):
            seen = yield Round((Ask(index=index),), most_voted(seen))
            leader, second = [*sorted(votes(seen).values(), reverse=True), 0.0, 0.0][:2]
            if leader and leads(int(leader), int(second)) >= self.sure_at:
                break
        return most_voted(seen)

    @property
    def most(self) -> tuple[int, int]:
        return self.width, 0


def leads(leader: int, second: int) -> float:
    """The chance that the leading answer is the likelier of the two, after so many votes and a uniform prior: that a
    Beta(leader + 1, second + 1) exceeds one half, as a sum of binomials.

    >>> leads(0, 0), leads(1, 0), round(leads(4, 0), 5), leads(2, 2)
    (0.5, 0.75, 0.96875, 0.5)
    """
    n = leader + second + 1
    return sum(comb(n, j) for j in range(leader + 1)) / 2**n
