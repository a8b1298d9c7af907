"""The training signal of one rollout, with its parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reward:
    """`total` is what advantages are made of; the parts are kept because only `correct` decides a band."""

    correct: float
    tag: float

    @property
    def total(self) -> float:
        return self.correct + self.tag


def reward(*, correct: bool, tag_valid: bool, tag_weight: float) -> Reward:
    """`correct + tag_weight · (tag_valid - 1)`: a broken form costs, a sound one earns nothing by itself.

    >>> [reward(correct=c, tag_valid=t, tag_weight=0.2).total for c, t in [(1, 1), (1, 0), (0, 1), (0, 0)]]
    [1.0, 0.8, 0.0, -0.2]
    >>> reward(correct=True, tag_valid=False, tag_weight=0.0).total
    1.0
    """
    return Reward(float(correct), 0.0 if tag_valid else -tag_weight)
