"""Classes of a step's rollouts, cheap enough to be made in it: no encoder, no grader."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.domain.grading.quantities import number

#: Key of every right answer: the grader has said that they are one.
RIGHT = "correct"
#: Profiles that share half of what either has are one way of solving it.
ALIKE = 0.5
_ATOM = r"(?:\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z]))"
_EQUATION = re.compile(rf"(?<![\w.]){_ATOM}(?: ?(?:[-+*/^=]| mod ) ?{_ATOM})+")
_THEOREM = re.compile(
    r"\b(?:(?:theorem|lemma|inequality|formula|identity|principle)|induction|contradiction|symmetry|substitut\w+"
    r"|factor\w*|modulo|pigeonhole|vieta\w*|cauchy\w*|fermat\w*|euler\w*|pythag\w+)\b",
    re.IGNORECASE,
)


def answer_key(canonical: str | None, *, correct: bool) -> str | None:
    """Names an answer's class alike in every step: right, a number by its value, else by its text; null without one.

    >>> [answer_key(text, correct=False) for text in ("1/2", "0.5", "even", None)], answer_key("7", correct=True)
    (['1/2', '1/2', 'even', None], 'correct')
    """
    if correct:
        return RIGHT
    found = None if canonical is None else number(canonical)
    return canonical if found is None else f"{found.value}{found.unit or ''}"


def strategy(trace: str) -> frozenset[str]:
    """What a trace does: its equations, without spaces, and the names of what it applies.

    >>> sorted(strategy("By Vieta, 3 + 4=7. So x = 7"))
    ['3+4=7', 'vieta', 'x=7']
    """
    equations = {text.replace(" ", "") for text in _EQUATION.findall(trace) if "=" in text}
    return frozenset(equations | {word.lower() for word in _THEOREM.findall(trace)})


def trace_classes(traces: Sequence[str]) -> list[int]:
    """The class of each trace among these, numbered as they first come: a trace joins the first one's class whose
    strategy shares ALIKE of what either has; one that names no strategy is a class with the others that do not.

    >>> trace_classes(["3+4=7. 7*2=14.", "Ann: 3+4=7. Bo: 7*2=14.", "2*3=6. 2*4=8. 6+8=14.", "hm", "well"])
    [0, 0, 1, 2, 2]
    """
    firsts: list[frozenset[str]] = []
    classes = []
    for found in map(strategy, traces):
        alike = (i for i, first in enumerate(firsts) if _jaccard(found, first) >= ALIKE)
        place = next(alike, len(firsts))
        if place == len(firsts):
            firsts.append(found)
        classes.append(place)
    return classes


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0
