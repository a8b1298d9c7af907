"""Which answers are the same: by the grader and not by spelling."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.domain.partitions.by_answer import Equal, Pair
from tasks.domain.scaffolds import NO_PANEL
from tasks.engines.grading.graders import GradeItem, Graders


def by_grader(graders: Graders) -> Equal:
    """Two answers are the same if each is correct where the other is the gold. In processes that can be killed."""

    def equal(pairs: Sequence[Pair]) -> Sequence[bool]:
        asked = [*pairs, *((b, a) for a, b in pairs)]
        verdicts = graders.grade([GradeItem("no_panel", NO_PANEL.answer_in_form(a), b) for a, b in asked])
        return [
            one.correct and back.correct
            for one, back in zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)
        ]

    return equal
