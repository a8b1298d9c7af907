"""The problems of one policy after they were looked at: numbers alone, so that no two parts' texts are held."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from tasks.measures.width.values import Problem, Series, view

NONE = {
    "partition": "no problem has {k} {which}rollouts with a class",
    "vectors": "no problem has {k} {which}rollouts with a vector",
    "words": "no problem has {k} {which}traces of {window} words",
}


class LookedAt:
    """What every series shows with every k of the problems that were added, and what they are besides.

    smallest: rollouts of the smallest group.
    """

    def __init__(self, several: Sequence[Series], ks: Sequence[int], vocabulary: Mapping[int, int]) -> None:
        self._several, self._ks, self._vocabulary = several, ks, vocabulary
        self._problems: list[str] = []
        self._adapters: list[str] = []
        self._clusters: dict[str, str] = {}
        self._length_N, self._accuracy_N = array("d"), array("d")
        self._value_N = {(series, k): array("d") for series in several for k in ks}
        self._most = dict.fromkeys(self._value_N, 0.0)
        self._why: dict[tuple[Series, int], str] = {}
        self.smallest = 0

    def add(self, problem: Problem) -> None:
        size = len(problem.group)
        self.smallest = min(size, self.smallest) if self._problems else size
        self._problems.append(problem.problem_id)
        self._adapters.append(problem.adapter)
        self._clusters[problem.problem_id] = problem.cluster
        self._length_N.append(float(problem.group.num_tokens_N.mean()))
        self._accuracy_N.append(float(problem.group.correct_N.mean()))
        for series in self._several:
            group = view(problem, series, self._vocabulary)
            for k in self._ks:
                found = series.measure.value(group, k) if len(group) >= k and (series, k) not in self._why else None
                if isinstance(found, str):
                    self._why[series, k] = found
                elif found is not None:
                    self._most[series, k] = max(self._most[series, k], series.measure.most(group, k))
                self._value_N[series, k].append(found if isinstance(found, float | int) else np.nan)

    def values(self, series: Series, k: int) -> tuple[np.ndarray, float, str | None]:
        """(value_PS, what it could be at most, why none is defined)."""
        most, why = self._most[series, k], self._why.get((series, k))
        value_PS = self._laid_out(self._value_N[series, k])
        if why is None and np.isnan(value_PS).all():
            which = "correct " if series.basis == "correct" else ""
            why = NONE[series.measure.of].format(k=k, which=which, window=series.window)
        return value_PS, most, why

    @property
    def length_PS(self) -> np.ndarray:
        return self._laid_out(self._length_N)

    @property
    def accuracy_PS(self) -> np.ndarray:
        return self._laid_out(self._accuracy_N)

    @property
    def adapters(self) -> list[str]:
        return sorted(set(self._adapters))

    @property
    def cluster_P(self) -> np.ndarray:
        """Codes, in the order of the clusters' names."""
        return np.unique([self._clusters[problem] for problem in sorted(self._clusters)], return_inverse=True)[1]

    def _laid_out(self, value_N: Sequence[float]) -> np.ndarray:
        """(P, S) by problem and adapter, both sorted; NaN where there is none."""
        problem = {name: place for place, name in enumerate(sorted(self._clusters))}
        adapter = {name: place for place, name in enumerate(self.adapters)}
        value_PS = np.full((len(problem), len(adapter)), np.nan)
        for name, of, value in zip(self._problems, self._adapters, value_N, strict=True):
            if not np.isnan(value):
                value_PS[problem[name], adapter[of]] = value
        return value_PS
