"""Every measure of width on every problem: from rows of rollouts to one number each, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.measures.diversity_measures import matrix
from tasks.measures.width.group import Group
from tasks.measures.width.registry import MEASURES, Measure
from tasks.measures.width.windows import Windows, windows_of

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
