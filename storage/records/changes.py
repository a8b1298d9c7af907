"""What studies change of what they are based on, told so that a reader sees which is which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def telling(changes: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """What each of several studies changes, first what fewest of them do: by it a reader tells them apart.

    >>> telling([("steps: 40 → 8", "rate: 1 → 2"), ("steps: 40 → 8",)])
    [('rate: 1 → 2', 'steps: 40 → 8'), ('steps: 40 → 8',)]
    """
    number = Counter(change for one in changes for change in dict.fromkeys(one))
    return [tuple(sorted(one, key=number.__getitem__)) for one in changes]
