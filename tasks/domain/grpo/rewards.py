"""The training signal of one rollout, with its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reward:
    """`total` is what advantages are made of; the parts are kept because only `correct` decides a band."""

    correct: float
    tag: float
    length: float = 0.0

    @property
    def total(self) -> float:
        """Rounded, because whether a group is live is asked by equality."""
        return round(self.correct + self.tag + self.length, 12)


def reward(
    *,
    correct: bool,
    tag_valid: bool,
    tag_weight: float,
    num_tokens: int = 0,
    max_tokens: int | None = None,
    overlong_cache: int = 0,
) -> Reward:
    """`correct + tag_weight · (tag_valid - 1) + overlong`: a broken form costs, a sound one earns nothing by itself.

    >>> [reward(correct=c, tag_valid=t, tag_weight=0.2).total for c, t in [(1, 1), (1, 0), (0, 1), (0, 0)]]
    [1.0, 0.8, 0.0, -0.2]
    >>> reward(correct=True, tag_valid=False, tag_weight=0.0).total
    1.0
    """
    length = overlong(num_tokens, max_tokens, overlong_cache) if max_tokens and overlong_cache else 0.0
    return Reward(float(correct), 0.0 if tag_valid else -tag_weight, length)


def versions(tag_weight: float, overlong_cache: int) -> Mapping[str, int]:
    """Of the parts that are computed otherwise than at first: sums are rounded since, which moves those with a
    punishment of length, and those of a tag_weight that floats do not hold.

    >>> [dict(versions(*parts)) for parts in ((0.2, 0), (0.7, 0), (0.2, 20))]
    [{}, {'tag_weight': 2}, {'overlong_cache': 2}]
    """
    moved = any(round(correct - tag_weight, 12) != correct - tag_weight for correct in (0.0, 1.0))
    return ({"tag_weight": 2} if moved else {}) | ({"overlong_cache": 2} if overlong_cache else {})


def overlong(num_tokens: int, max_tokens: int, cache: int) -> float:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv 2503.14476, eq. 13): nothing up to max_tokens - cache,
    from there falling to -1 at max_tokens. Their right answer is worth 2 more than a wrong one, ours 1 more.

    >>> [overlong(n, 100, 20) for n in (80, 90, 100, 120)]
    [0.0, -0.5, -1.0, -1.0]
    """
    return min(0.0, max(-1.0, (max_tokens - cache - num_tokens) / cache))
