"""What a person is shown of sampling while it goes on: a first trace, and the bands of the groups that are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from storage.bands import Band, band
from tasks.engines.sampling.sampler import RolloutRequest, Rows
from tasks.stage import progress

#: Characters of a trace that is shown.
SHOWN = 240


class WholeGroups:
    """Bands of the problems all of whose rollouts were kept here: of one that was begun before nothing is said."""

    def __init__(self, requested: Sequence[RolloutRequest], missing: Sequence[RolloutRequest]) -> None:
        whole = Counter(one.problem_id for one in requested)
        left = Counter(one.problem_id for one in missing)
        self._size = {problem: size for problem, size in whole.items() if left[problem] == size}
        self._kept: Counter[str] = Counter()
        self._correct: Counter[str] = Counter()
        self._bands: Counter[Band] = Counter()

    def tell(self, rows: Rows) -> tuple[int, ...]:
        """Of the first rows a trace. Returns how many problems each band has with these, as Band lists them."""
        if not self._kept:
            progress(0, 0, detail=first_trace([row for _, row in rows]), event="seen")
        for asked, row in rows:
            problem = asked.problem_id
            self._kept[problem] += 1
            self._correct[problem] += bool(row["correct"])
            if self._kept[problem] == self._size.get(problem):
                self._bands[band(self._correct[problem], self._size[problem])] += 1
        return tuple(self._bands[one] for one in Band)


def first_trace(rows: Sequence[Mapping[str, object]]) -> str:
    """The first rollout that was solved, else the first, in one line; nothing of none.

    >>> row = {"arm": "panel", "completion": "so  7", "verdict": "wrong", "correct": False}
    >>> first_trace([row, row | {"completion": "8", "verdict": "correct", "correct": True}])
    'panel: 8  → correct'
    >>> first_trace([row]), first_trace([])
    ('panel: so 7  → wrong', '')
    """
    if not rows:
        return ""
    row = next((row for row in rows if row["correct"]), rows[0])
    said = " ".join(str(row["completion"]).split())
    return f"{row['arm']}: {said[:SHOWN]}{'…' if len(said) > SHOWN else ''}  → {row['verdict']}"
