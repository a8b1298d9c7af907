"""Panel of traces: several attempts are summarised, and the problem is solved with the summary at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.majority import most_voted
from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, drawn
from tasks.domain.search.widths import AtLeastTwo


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOfTraces(Method):
    """width: attempts that are summarised."""

    width: AtLeastTwo = 4

    def rounds(self, question: str) -> Rounds:
        """The answer after the summary; where it gives none, the attempts' majority."""
        seen = yield Round(tuple(Ask(index=index) for index in range(self.width)))
        attempts = drawn(seen)
        seen = yield Round((summarising(question, attempts),), most_voted(seen))
        seen = yield Round((concluding(question, seen[-1]),), most_voted(attempts))
        return seen[-1] if seen[-1].answer is not None else most_voted(drawn(seen))

    @property
    def most(self) -> tuple[int, int]:
        return self.width, 2


def listed(attempts: Sequence[Candidate]) -> str:
    return "\n\n".join(
        f"Attempt {place}:\n{c.words}\nIts answer: {c.answer or 'none'}" for place, c in enumerate(attempts, start=1)
    )


def summarising(question: str, attempts: Sequence[Candidate]) -> Ask:
    text = (
        f"{question}\n\n{listed(attempts)}\n\nDo not solve the problem: say in a few lines where the attempts agree,"
        " where they differ, and which of their steps are right."
    )
    return Ask(operator="summarise", question=text, parents=tuple(c.name for c in attempts), answers=False)


def concluding(question: str, summary: Candidate) -> Ask:
    text = f"{question}\n\nWhat several attempts found:\n{summary.words}\n\nSolve the problem."
    return Ask(operator="conclude", question=text, parents=(summary.name,))
