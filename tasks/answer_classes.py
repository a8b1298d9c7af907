"""Which answers are the same: by the grader of their kind and not by spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasks.domain.grading.kinds import OWN
from tasks.domain.partitions.classes import Equal, Pair
from tasks.domain.scaffolds import BARE, MATH
from tasks.engines.grading.graders import GradeItem, Graders


def by_grader(graders: Graders, kind: str = MATH) -> Equal:
    """Two answers are the same if each is correct where the other is the gold. In processes that can be killed.

    Of our own kinds that are not mathematics every answer has one spelling, and two spellings are two answers.
    """
    bare = replace(BARE["tag"], answer_kind=kind)

    def equal(pairs: Sequence[Pair]) -> Sequence[bool]:
        if kind in OWN:
            return [False] * len(pairs)
        asked = [*pairs, *((b, a) for a, b in pairs)]
        verdicts = graders.grade([GradeItem(bare, bare.answer_in_form(a), b) for a, b in asked])
        return [
            one.correct and back.correct
            for one, back in zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)
        ]

    return equal
