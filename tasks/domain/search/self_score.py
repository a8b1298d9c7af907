"""Best-of-n by a reward scaffold: the policy itself is asked how good each of its answers is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, answered
from tasks.domain.search.widths import AtLeastOne

BEST = 10.0
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfScore(Method):
    """width: rollouts at most; each that gave an answer is scored once."""

    width: AtLeastOne = 8

    def rounds(self, question: str) -> Rounds:
        seen: Sequence[Candidate] = ()
        for index in range(self.width):
            seen = yield Round((Ask(index=index),), best_scored(seen))
            if seen[-1].answer is not None:
                seen = yield Round((scoring(question, seen[-1]),), best_scored(seen))
        return best_scored(seen)

    @property
    def most(self) -> tuple[int, int]:
        return self.width, self.width


def scoring(question: str, candidate: Candidate) -> Ask:
    text = (
        f"{question}\n\nA proposed solution:\n{candidate.words}\n\nIts answer: {candidate.answer}\n\nHow likely is it"
        " that this answer is right? Do not solve the problem: your own answer is one number from 0 (surely wrong) to"
        f" {BEST:.0f} (surely right)."
    )
    return Ask(operator="score", question=text, parents=(candidate.name,), answers=False)


def scores(seen: Sequence[Candidate]) -> dict[str, float]:
    """Candidate → the score that it was given, in [0, 1]; those whose score cannot be read are not there."""
    found = {}
    for c in seen:
        if c.ask.operator == "score" and c.answer and (number := _NUMBER.fullmatch(c.answer)):
            found[c.ask.parents[0]] = min(float(number[0]), BEST) / BEST
    return found


def best_scored(seen: Sequence[Candidate]) -> Candidate | None:
    """The answer of the highest score, of equal ones the likeliest; what was not scored comes last."""
    given = scores(seen)
    return max(answered(seen), key=lambda c: (given.get(c.name, -1.0), c.likelihood), default=None)
