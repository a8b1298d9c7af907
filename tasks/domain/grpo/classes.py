"""Classes of a step's rollouts, cheap enough to be made in it: no encoder, no grader."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.domain.grading.quantities import number
from tasks.domain.partitions.by_strategy import by_strategy
from tasks.domain.partitions.classes import Classes
from tasks.domain.scaffolds import MATH

#: Key of every right answer: the grader has said that they are one.
RIGHT = "correct"
#: From which on two strategies are one, as the labelled traces set it (tests/domain/grpo/test_diversity_objectives.py).
THRESHOLD = 0.31


def answer_key(canonical: str | None, *, correct: bool, kind: str = MATH) -> str | None:
    """Names an answer's class alike in every step: right, a number of mathematics by its value, else by its text; null
    without one. kind: of the answer.

    >>> [answer_key(text, correct=False) for text in ("1/2", "0.5", "even", None)], answer_key("7", correct=True)
    (['1/2', '1/2', 'even', None], 'correct')
    """
    if correct:
        return RIGHT
    if canonical is not None and canonical.lstrip() == RIGHT:
        return f" {canonical}"  # a wrong answer that says so
    found = number(canonical) if canonical is not None and kind == MATH else None
    return canonical if found is None else f"{found.value}{found.unit or ''}"


def trace_classes(traces: Sequence[str | None]) -> Classes:
    """The strategy of each of a problem's traces; those that name none are one class, null.

    >>> trace_classes(["3+4=7. 7*2=14.", "Ann: 3+4=7. Bo: 7*2=14.", "2*3=6. 2*4=8. 6+8=14.", "hm", None])
    [0, 0, 1, None, None]
    """
    return by_strategy(traces, THRESHOLD)
