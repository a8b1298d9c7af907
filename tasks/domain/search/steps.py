"""Step search: answers are written step by step, and what was written so far is scored after every step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import exp, prod
from typing import Literal

from storage.errors import UserError
from tasks.domain.search.method import Ask, Candidate, Method, Round, answered
from tasks.domain.search.self_score import BEST, scores
from tasks.domain.search.widths import AtLeastOne

By = Literal["self", "likelihood", "process", "outcome"]
OVER = {"last": lambda scores: scores[-1], "least": min, "product": prod}
#: New steps with their scores, and all that was seen.
Growth = Generator[Round, Sequence[Candidate], tuple[list[Candidate], Sequence[Candidate]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSearch(Method):
    """by: who scores: the policy, asked how likely a beginning leads to the right answer (`self`), the mean probability
    that it gave the tokens (`likelihood`), or a reward model, of every step (`process`) or of the whole (`outcome`).
    over: what a process model's scores of a path come to. end: the text that ends a step. depth: steps at most."""

    by: By = "self"
    over: Literal["last", "least", "product"] = "least"
    end: str = "\n\n"
    depth: AtLeastOne = 16

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        if not self.end:
            raise UserError("end is empty; it must be the text that ends a step")

    @property
    def in_steps(self) -> bool:
        return True

    @property
    def reward(self) -> str:
        return self.by if self.by in ("process", "outcome") else ""

    @property
    def most(self) -> tuple[int, int]:
        return 0, self.steps * (2 if self.by == "self" else 1)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps that are asked for at most."""

    def step(self, parent: Candidate | None, index: int) -> Ask:
        return Ask(operator="step", parents=() if parent is None else (parent.name,), index=index, end=self.end)

    def grown(self, question: str, asks: Sequence[Ask], seen: Sequence[Candidate]) -> Growth:
        seen = yield Round(tuple(asks), self.best(seen))
        wanted = set(asks)
        new = [c for c in seen if c.ask in wanted]
        if self.by == "self" and new:
            seen = yield Round(tuple(judging(question, c) for c in new), self.best(seen))
        return new, seen

    def values(self, seen: Sequence[Candidate]) -> dict[str, float]:
        """Candidate → its score in [0, 1]; 0 where there is none."""
        if self.by == "likelihood":
            return {c.name: exp(c.likelihood) for c in seen if c.ask.end}
        if self.by == "self":
            return dict.fromkeys((c.name for c in seen if c.ask.end), 0.0) | scores(seen)
        return {c.name: OVER[self.over](c.scores) if c.scores else 0.0 for c in seen if c.ask.end}

    def best(self, seen: Sequence[Candidate]) -> Candidate | None:
        """The answer of the highest score, of equal ones the likeliest."""
        found = self.values(seen)
        return max(answered(seen), key=lambda c: (found[c.name], c.likelihood), default=None)


def judging(question: str, candidate: Candidate) -> Ask:
    text = (
        f"{question}\n\nA solution so far:\n{candidate.words}\n\nHow likely is it that it leads to the right answer? Do"
        f" not solve the problem: your own answer is one number from 0 (surely wrong) to {BEST:.0f} (surely right)."
    )
    return Ask(operator="score", question=text, parents=(candidate.name,), answers=False)
