"""Parallel methods: rollouts of the problem itself, one after another, and a rule that picks one of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, answered
from tasks.domain.search.widths import AtLeastOne

Choice = Callable[[Sequence[Candidate]], Candidate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Method):
    """width: rollouts at most."""

    width: AtLeastOne = 16

    @abstractmethod
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None: ...

    def rounds(self, question: str) -> Rounds:
        seen: Sequence[Candidate] = ()
        for index in range(self.width):
            seen = yield Round((Ask(index=index),), self.choose(seen))
        return self.choose(seen)

    @property
    def sure(self) -> int:
        return self.width

    @property
    def most(self) -> tuple[int, int]:
        return self.width, 0


def highest(seen: Sequence[Candidate], score: Callable[[Candidate], float]) -> Candidate | None:
    """The first of the highest score among those with an answer."""
    return max(answered(seen), key=score, default=None)
