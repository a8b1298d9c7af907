"""Answers of several parts against each other: in order, in any order, as sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasks.domain.grading.shapes import Shape

#: Is one part the other?
Agree = Callable[[Shape, Shape], bool]


def in_order(got: Sequence[Shape], want: Sequence[Shape], agree: Agree) -> bool:
    return len(got) == len(want) and all(agree(g, w) for g, w in zip(got, want, strict=True))


def one_to_one(got: Sequence[Shape], want: Sequence[Shape], agree: Agree) -> bool:
    """In any order, each as often. Greedy is exact because agreement is (all but) an equivalence."""
    if len(got) != len(want):
        return False
    left = list(want)
    for item in got:
        hit = next((w for w in left if item.text == w.text), None) or next((w for w in left if agree(item, w)), None)
        if hit is None:
            return False
        left.remove(hit)
    return True


def as_sets(got: Sequence[Shape], want: Sequence[Shape], agree: Agree) -> bool:
    return all(any(agree(g, w) for w in want) for g in got) and all(any(agree(g, w) for g in got) for w in want)
