"""Sequential revision (Snell et al. 2024, arXiv 2408.03314): the policy sees its last attempt and tries again."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.search.method import Ask, Candidate, Method, Round, Rounds, newest
from tasks.domain.search.widths import AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision(Method):
    """revisions: at most, one after another."""

    revisions: AtLeastOne = 4

    def rounds(self, question: str) -> Rounds:
        """The answer is the newest that was given."""
        seen = yield Round((Ask(),))
        for _ in range(self.revisions):
            seen = yield Round((revising(question, seen[-1]),), newest(seen))
        return newest(seen)

    @property
    def most(self) -> tuple[int, int]:
        return 1, self.revisions


def revising(question: str, last: Candidate) -> Ask:
    text = (
        f"{question}\n\nAn earlier attempt:\n{last.words}\n\nIts answer: {last.answer or 'none'}\n\nCheck the attempt,"
        " mend what is wrong in it, and solve the problem."
    )
    return Ask(operator="revise", question=text, parents=(last.name,))
