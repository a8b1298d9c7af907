"""Width: how many different things a problem's rollouts are, by every measure; and how measures go with one another,
with length and with accuracy, so that nobody mistakes one for the other."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.kinds import Embeddings, Partitions, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.sql import query
from tasks.domain.statistics.curves_of_k import INCOMPLETE, interval
from tasks.domain.statistics.means import ADAPTERS
from tasks.domain.statistics.regression import rank_correlations
from tasks.evidence import matrix, with_vectors
from tasks.measures.groups import clusters_of, in_classes
from tasks.measures.standard import standard_measure
from tasks.measures.width import MEASURES, Group, Measure, Windows, windows_of
from tasks.stage import stage, store

# Every measure of width on every problem: from rows of rollouts to one number each, or why there is none.

PARTITIONS = ("answer", "trace", "strategy")
BASES = ("all", "correct")
#: Words of a window. A trace that is shorter than one is not looked at in it, so all that is compared is equally long.
WINDOWS = (16, 64, 256)
_WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


@dataclass(frozen=True, slots=True)
class Series:
    """What rows of the table are about, before policy and k. partition: null for measures of none."""

    measure: Measure
    partition: str | None
    basis: str
    window: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem under one policy, with its views: by partition, and by window."""

    arm: str
    step: int
    adapter: str
    problem_id: str
    cluster: str
    group: Group
    classes: Mapping[str, np.ndarray]
    windows: Mapping[int, Windows]


def words_of(trace: str | None) -> list[str]:
    """The first words, numbers and signs of a trace, of the longest window.

    >>> words_of("So x=12."), words_of(None)
    (['so', 'x', '=', '12', '.'], [])
    """
    found = () if trace is None else islice(_WORD.finditer(trace), max(WINDOWS))
    return [match[0].lower() for match in found]


def window_of(words: Sequence[str], window: int) -> Sequence[str] | None:
    """
    >>> window_of(["so", "x"], 2), window_of(["so", "x"], 3)
    (['so', 'x'], None)
    """
    return words[:window] if len(words) >= window else None


def vocabulary_of(traces: Iterable[str | None]) -> dict[int, int]:
    """Window → different words in it: of windows that some trace is as long as, else of the shortest."""
    held: dict[int, set[str]] = {window: set() for window in WINDOWS}
    for trace in traces:
        words = words_of(trace)
        for window, known in held.items():
            known.update(window_of(words, window) or ())
    return {window: len(known) for window, known in held.items() if known} or {WINDOWS[0]: 0}


def problems_of(rollouts: pa.Table, vectors: pa.Table, windows: Iterable[int]) -> list[Problem]:
    """Every problem under every policy. rollouts: with their classes and `cluster`. vectors: of whole traces, by
    policy, problem, rollout."""
    keys = ["arm", "step", "seed", "problem_id", "rollout"]
    # keys alone are joined and sorted: of a million traces a database would copy each
    numbered = query(
        f"select r.own, e.place from rollouts r left join (select *, row_number() over () - 1 as place from v) e"
        f" using ({', '.join(keys)}) order by r.arm, r.step, coalesce(r.adapter, ''), r.seed, r.problem_id, r.rollout",
        rollouts=rollouts.select([*keys, "adapter"]).append_column("own", pa.array(range(rollouts.num_rows))),
        v=vectors.select(keys),
    )
    vectors_ND = matrix(vectors["embedding"]) if vectors.num_rows else np.zeros((0, 1))
    with_none_ND = np.vstack([vectors_ND, np.full((1, vectors_ND.shape[1]), np.nan)])
    rows = rollouts.take(numbered["own"]).to_pydict() | {"place": numbered["place"].to_pylist()}
    together = list(zip(*(rows[k] for k in ("arm", "step", "adapter", "seed", "problem_id")), strict=True))
    starts = [i for i, one in enumerate(together) if i == 0 or one != together[i - 1]]
    read = [words_of(trace) for trace in rows["trace"]]
    found = []
    for start, stop in zip(starts, [*starts[1:], len(together)], strict=True):
        some = slice(start, stop)
        place = [len(vectors_ND) if p is None else p for p in rows["place"][some]]
        classes = {
            name: np.array([-1 if c is None else c for c in rows[f"{name}_class"][some]], np.int64)
            for name in PARTITIONS
        }
        group = Group(
            class_N=classes["answer"],
            correct_N=np.array(rows["correct"][some], bool),
            logprob_N=np.array([np.nan if x is None else x for x in rows["logprob_sum"][some]], np.float64),
            num_tokens_N=np.array(rows["num_tokens"][some], np.float64),
            vectors_ND=with_none_ND[place],
        )
        arm, step, adapter, _, problem = together[start]
        cluster, told = rows["cluster"][start], windows_of(read[some], windows)
        found.append(Problem(arm, step, adapter or "", problem, cluster, group, classes, told))
    return found


def series_of(windows: Sequence[int]) -> Iterator[Series]:
    for measure in MEASURES:
        for partition in PARTITIONS if measure.of == "partition" else (None,):
            for window in windows if measure.of == "words" else (None,):
                for basis in BASES:
                    yield Series(measure, partition, basis, window)


def view(problem: Problem, series: Series, vocabulary: Mapping[int, int]) -> Group:
    """What of a problem a measure looks at."""
    group = problem.group
    if series.partition is not None:
        group = replace(group, class_N=problem.classes[series.partition])
    if series.window is not None:
        group = replace(group, windows=problem.windows[series.window], vocabulary=vocabulary[series.window])
    kept_N = np.ones(len(group), bool)
    if series.basis == "correct":
        kept_N &= group.correct_N
    if series.measure.of == "vectors":
        kept_N &= np.isfinite(group.vectors_ND).all(axis=1)
    if series.measure.of == "words":
        kept_N &= group.words.there_N
    if series.measure.of == "partition" and not series.measure.unclassed:
        kept_N &= group.class_N >= 0
    return group if kept_N.all() else group.only(kept_N)


# The problems of one policy after they were looked at: numbers alone, so that no two parts' texts are held.

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


COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum", "trace"]
Part = tuple[pa.Table, pa.Table]
#: What of a series is set beside others: its name and partition, and its mean_P over adapters, NaN where one lacks it.
Beside = tuple[dict[str, Any], np.ndarray]


class Widths(
    Ref,
    kind="widths",
    schema=nullable(
        "metric str, other str, partition str, other_partition str, basis str, window int, arm str, step int, k int",
        "estimate real, low real, high real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Width by every measure; with `other`, the rank correlation over problems of two of them."""


def widths_of(parts: Iterable[Part], vocabulary: Mapping[int, int], ks: Sequence[int]) -> pa.Table:
    """One row per measure, partition or window, basis (all rollouts, or the correct alone), policy and k; then one per
    two measures and policy, at the largest k that is no more than half a group.

    parts: rollouts of whole problems under one policy or several, and their vectors: see problems_of.
    vocabulary: of all of them.
    """
    several, above_one = list(series_of(sorted(vocabulary))), [k for k in ks if k > 1]
    policies: dict[tuple[str, int], LookedAt] = {}
    for rollouts, vectors in parts:
        for problem in problems_of(rollouts, vectors, vocabulary):
            key = problem.arm, problem.step
            if key not in policies:
                policies[key] = LookedAt(several, above_one, vocabulary)
            policies[key].add(problem)
    rows: list[dict[str, Any]] = []
    for (arm, step), seen in sorted(policies.items()):
        where = {"arm": arm, "step": step}
        shown = max((k for k in above_one if k <= max(seen.smallest / 2, 2)), default=None)
        alongside: list[Beside] = []
        for series in several:
            about = {"metric": series.measure.name, "partition": series.partition, "window": series.window}
            for k in above_one:
                value_PS, most, why = seen.values(series, k)
                row = about | where | {"basis": series.basis, "k": k}
                rows.append(row | summarised(series, seen, value_PS, most, why))
                if k == shown and series.basis == "all" and series.window in (None, min(vocabulary)) and not why:
                    alongside.append((about, _over_adapters(value_PS)))
        rows += [where | {"k": shown} | row for row in correlations(seen, alongside)]
    return pa.Table.from_pylist(rows, schema=Widths.schema)


def summarised(series: Series, seen: LookedAt, value_PS: np.ndarray, most: float, why: str | None) -> dict[str, Any]:
    """Mean over problems that every adapter has a value of, with the interval of a share of what could be."""
    if why:
        return {"n": 0, "reason": why}
    least, there_PS = series.measure.least, ~np.isnan(value_PS)
    kept_P = there_PS.any(axis=1)
    cluster_P = seen.cluster_P[kept_P]
    problem_N, adapter_N = np.nonzero(there_PS[kept_P])
    untrained = "" in seen.adapters
    share_N = (value_PS[there_PS] - least) / (most - least)
    [row] = interval(problem_N, adapter_N + (not untrained), cluster_P[problem_N], share_N[:, None], gradual=True)
    if not row["n"] or len(set(adapter_N)) < len(seen.adapters):
        return {"n": 0, "seeds": row["seeds"], "reason": INCOMPLETE}
    for name in ("estimate", "low", "high"):
        row[name] = None if row[name] is None else least + row[name] * (most - least)
    return row


def correlations(seen: LookedAt, alongside: Sequence[Beside]) -> list[dict[str, Any]]:
    """Every two measures of one policy, and each with the mean length and the accuracy of its problems."""
    besides = (("length", seen.length_PS), ("accuracy", seen.accuracy_PS))
    means = [*alongside, *(({"metric": name}, _over_adapters(value_PS)) for name, value_PS in besides)]
    seeds = len(seen.adapters) if any(seen.adapters) else None
    there_MP = [~np.isnan(mean_P) for _, mean_P in means]
    on: dict[bytes, list[tuple[int, int]]] = {}
    for pair in combinations(range(len(means)), 2):
        on.setdefault((there_MP[pair[0]] & there_MP[pair[1]]).tobytes(), []).append(pair)
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for problems, pairs in on.items():
        both_P = np.frombuffer(problems, bool)
        cluster_P = seen.cluster_P[both_P]
        shared = {"n": int(both_P.sum()), "clusters": len(set(cluster_P)), "seeds": seeds}
        told = rank_correlations([mean_P[both_P] for _, mean_P in means], pairs, cluster_P)
        for pair, one in zip(pairs, told, strict=True):
            intervals = {"estimate": one.estimate, "low": one.low, "high": one.high, "reason": one.reason}
            found[pair] = intervals | shared | {"holds_for": ADAPTERS if seeds else None}
    return [
        means[i][0]
        | {"other": means[j][0]["metric"], "other_partition": means[j][0].get("partition"), "basis": "all"}
        | found[i, j]
        for i, j in combinations(range(len(means)), 2)
    ]


def _over_adapters(value_PS: np.ndarray) -> np.ndarray:
    """mean_P; NaN where an adapter has none."""
    return np.array([fmean(of) for of in value_PS])


@standard_measure("widths", rollouts="final")
@stage(Widths, version=7)
def measure_widths(
    *,
    rollouts: tuple[Rollouts, ...],
    partitions: tuple[Partitions, ...],
    embeddings: tuple[Embeddings, ...],
    ks: tuple[int, ...],
) -> pa.Table:
    """Every measure of width of every policy, and their rank correlations over problems.

    partitions, embeddings: of each of the rollouts.
    """
    clusters = clusters_of(rollouts)
    traces = (t for ref in rollouts for part in store().parts(ref, ["trace"]) for t in part["trace"].to_pylist())
    of_each = zip(rollouts, partitions, embeddings, strict=True)
    return widths_of((part for refs in of_each for part in _parts(*refs, clusters)), vocabulary_of(traces), ks)


def _parts(rollouts: Rollouts, partitions: Partitions, embeddings: Embeddings, clusters: pa.Table) -> Iterator[Part]:
    def told() -> Iterator[pa.Table]:
        for part in in_classes(rollouts, partitions, COLUMNS):
            place = pc.index_in(part["problem_id"], clusters["problem_id"])  # pyright: ignore[reportAttributeAccessIssue]
            yield part.append_column("cluster", clusters["cluster"].take(place))

    return with_vectors(told(), embeddings)
