"""Self-refine (Madaan et al. 2023, arXiv 2303.17651): attempt, critique, an attempt that heeds it."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, newest
from tasks.domain.search.widths import AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Refine(Method):
    """refinements: at most, each after a critique."""

    refinements: AtLeastOne = 2

    def rounds(self, question: str) -> Rounds:
        """The answer is the newest that was given."""
        seen = yield Round((Ask(),))
        for _ in range(self.refinements):
            attempt = seen[-1]
            seen = yield Round((criticising(question, attempt),), newest(seen))
            seen = yield Round((refining(question, attempt, seen[-1]),), newest(seen))
        return newest(seen)

    @property
    def most(self) -> tuple[int, int]:
        return 1, 2 * self.refinements


def criticising(question: str, attempt: Candidate) -> Ask:
    text = (
        f"{question}\n\nAn attempt at it:\n{attempt.words}\n\nIts answer: {attempt.answer or 'none'}\n\nDo not"
        " solve the problem: name the first mistake of the attempt, or say that there is none."
    )
    return Ask(operator="criticise", question=text, parents=(attempt.name,), answers=False)


def refining(question: str, attempt: Candidate, critique: Candidate) -> Ask:
    text = (
        f"{question}\n\nAn attempt at it:\n{attempt.words}\n\nA critique of the attempt:\n{critique.words}\n\nSolve the"
        " problem, and heed what of the critique is right."
    )
    return Ask(operator="refine", question=text, parents=(attempt.name, critique.name))
