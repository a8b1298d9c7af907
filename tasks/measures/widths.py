"""Width of each policy by every measure, and rank correlations of the measures, mean length and accuracy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Embeddings, Partitions, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from tasks.domain.statistics.means import ADAPTERS
from tasks.domain.statistics.regression import rank_correlations
from tasks.evidence import VECTORS, matrix, with_vectors
from tasks.measures.groups import Row, counts_of, estimates, in_classes, seeded, stretches
from tasks.measures.standard import standard_measure
from tasks.measures.width import MEASURES, Group, Measure, words_in
from tasks.stage import stage, store

# Compute every measure of width on every problem.

PARTITIONS = ("answer", "trace", "strategy")
BASES = ("all", "correct")
#: Lengths of windows in words. A window leaves out shorter traces, so compared texts have equal length.
WINDOWS = (16, 64, 256)
_WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")
NONE = {
    "partition": "no problem has {k} {which}rollouts with a class",
    "likelihood": "no problem has {k} {which}rollouts with a class and a log-probability",
    "vectors": "no problem has {k} {which}rollouts with a vector",
    "words": "no problem has {k} {which}traces of {window} words",
}


@dataclass(frozen=True, slots=True)
class Series:
    """A measure with its options, which identify rows within a policy and k. partition: None for other inputs."""

    measure: Measure
    partition: str | None
    basis: str
    window: int | None

    def head(self, k: int) -> Row:
        """Return the first fields of a row, and `why`, the reason if there is no number."""
        which = "correct " if self.basis == "correct" else ""
        none = NONE["likelihood" if self.measure.likelihood else self.measure.of]
        named = {"metric": self.measure.name, "partition": self.partition, "window": self.window}
        return named | {"basis": self.basis, "k": k, "why": none.format(k=k, which=which, window=self.window)}


def series_of(windows: Sequence[int]) -> Iterator[Series]:
    for measure in MEASURES:
        for partition in PARTITIONS if measure.of == "partition" else (None,):
            for window in windows if measure.of == "words" else (None,):
                for basis in BASES:
                    yield Series(measure, partition, basis, window)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem under one policy. group: with the longest window; size_N: words of each trace, up to that window."""

    key: Row
    group: Group
    classes: Mapping[str, np.ndarray]
    size_N: np.ndarray

    def seen(self, series: Series, vocabulary: Mapping[int, int]) -> Group:
        """Return the rollouts of a problem that a series uses."""
        group, measure, kept_N = self.group, series.measure, np.ones(len(self.group), bool)
        if series.basis == "correct":
            kept_N &= group.correct_N
        if measure.of == "vectors":
            kept_N &= np.isfinite(group.vectors_ND).all(axis=1)
        if series.window is not None:
            kept_N &= self.size_N >= series.window
            words, held = group.words.first(series.window), vocabulary[series.window]
            group = replace(group, words=words, vocabulary=held)
        if series.partition is not None:
            group = replace(group, class_N=self.classes[series.partition])
            kept_N &= (group.class_N >= 0) | measure.unclassed
        if measure.likelihood:
            kept_N &= np.isfinite(group.logprob_N)
        return group if kept_N.all() else group.only(kept_N)


def words_of(trace: str | None) -> list[str]:
    """Return the first words, numbers and signs of a trace, up to the longest window.

    >>> words_of("So x=12."), words_of(None)
    (['so', 'x', '=', '12', '.'], [])
    """
    found = () if trace is None else islice(_WORD.finditer(trace), max(WINDOWS))
    return [match[0].lower() for match in found]


def vocabulary_of(traces: Iterable[str | None]) -> dict[int, int]:
    """Return window → number of different words, for windows that some trace fills, else for the shortest."""
    held: dict[int, set[str]] = {window: set() for window in WINDOWS}
    for trace in traces:
        words = words_of(trace)
        for window, known in held.items():
            known.update(words[:window] if len(words) >= window else ())
    return {window: len(known) for window, known in held.items() if known} or {WINDOWS[0]: 0}


def problems_of(rollouts: pa.Table, vectors: pa.Table) -> Iterator[Problem]:
    """Yield every problem under every policy. rollouts: with their classes and `cluster`. vectors: embeddings of whole
    traces, by policy, problem, rollout."""
    place = {key: i for i, key in enumerate(zip(*(vectors[c].to_pylist() for c in VECTORS[:-1]), strict=True))}
    vectors_ND = matrix(vectors["embedding"]) if vectors.num_rows else np.zeros((0, 1))
    with_none_ND = np.vstack([vectors_ND, np.full((1, vectors_ND.shape[1]), np.nan)])
    keys = ["arm", "step", "adapter", "seed", "problem_id"]
    ordered = rollouts.sort_by([(name, "ascending") for name in [*keys, "rollout"]])
    for key, some in stretches(ordered, [*keys, "cluster"]):
        rows = ordered.slice(some.start, some.stop - some.start)
        classes = {name: rows[f"{name}_class"].fill_null(-1).to_numpy() for name in PARTITIONS}
        read = [words_of(trace) for trace in rows["trace"].to_pylist()]
        mine = zip(*(rows[c].to_pylist() for c in VECTORS[:-1]), strict=True)
        group = Group(
            class_N=classes["answer"],
            correct_N=np.array(rows["correct"].to_pylist(), bool),
            logprob_N=np.array(rows["logprob_sum"].to_pylist(), np.float64),
            num_tokens_N=rows["num_tokens"].to_numpy().astype(np.float64),
            vectors_ND=with_none_ND[[place.get(one, len(vectors_ND)) for one in mine]],
            words=words_in(read),
        )
        yield Problem(key | {"adapter": key["adapter"] or ""}, group, classes, np.array([len(words) for words in read]))


COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum", "trace"]
Part = tuple[pa.Table, pa.Table]


class Widths(
    Ref,
    kind="widths",
    schema=nullable(
        "metric str, other str, partition str, other_partition str, basis str, window int, arm str, step int, k int",
        "estimate real, low real, high real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Width by every measure; with `other`, the rank correlation of two measures over problems."""


def widths_of(parts: Iterable[Part], vocabulary: Mapping[int, int], ks: Sequence[int]) -> pa.Table:
    """Return one row per measure, partition or window, basis (all or correct rollouts), policy and k; then one per pair
    of measures and policy, at the largest k of at most half a group. parts: rollouts of whole problems and their
    vectors, see problems_of. vocabulary: over all parts."""
    several, above_one = list(series_of(sorted(vocabulary))), [k for k in ks if k > 1]
    heads = [series.head(k) for series in several for k in above_one]
    keys, shares, most = list[Row](), list[list[float]](), [1.0] * len(heads)
    for problem in (problem for part in parts for problem in problems_of(*part)):
        shares.append([])
        for series in several:
            group, measure = problem.seen(series, vocabulary), series.measure
            for k in above_one:
                value = measure.value(group, k) if len(group) >= k else None
                if value is not None:
                    most[len(shares[-1])] = top = measure.most(group, k)
                    value = (value - measure.least) / (top - measure.least)
                shares[-1].append(np.nan if value is None else value)
        about = {"source": "all", "row": len(keys), "size": len(problem.group)}
        means = {"length": problem.group.num_tokens_N.mean(), "accuracy": problem.group.correct_N.mean()}
        keys.append(problem.key | about | means)
    counts, share_NV, rows = counts_of(pa.Table.from_pylist(keys)), np.array(shares), list[Row]()
    for arm, step in dict.fromkeys((arm, step) for arm, step, _ in counts.places):
        of, where = counts.at((arm, step, "all")), {"arm": arm, "step": step}
        of |= {f"{place}": share_N for place, share_N in enumerate(share_NV[of["row"]].T)}
        intervals = estimates(of, {f"{i}": head for i, head in enumerate(heads)}, partial=True, gradual=True)
        for place, row in enumerate(intervals):
            least = several[place // len(above_one)].measure.least
            ends = [end for end in ("estimate", "low", "high") if row.get(end) is not None]
            rows.append(where | row | {end: least + row[end] * (most[place] - least) for end in ends})
        largest_k = max((k for k in above_one if k <= max(of["size"].min() / 2, 2)), default=None)
        alongside = {
            f"{place}": head
            for place, head in enumerate(heads)
            if (head["k"], head["basis"]) == (largest_k, "all")
            and head["window"] in (None, min(vocabulary))
            and np.isfinite(of[f"{place}"]).any()
        }
        rows += [where | {"k": largest_k} | row for row in correlations(of, alongside)]
    return pa.Table.from_pylist(rows, schema=Widths.schema)


def correlations(of: Mapping[str, np.ndarray], heads: Mapping[str, Row]) -> list[Row]:
    """Correlate every two measures of one policy, and each with mean length and accuracy per problem. of: columns of
    the policy's problems; heads: column → first fields of its rows."""
    heads = {**heads, "length": {"metric": "length"}, "accuracy": {"metric": "accuracy"}}
    found, names = seeded(of, list(heads)), list(heads.values())
    mean_PV = found.values_SPV.mean(axis=0)
    there_PV = np.isfinite(mean_PV)
    shared: Row = (
        {"basis": "all", "seeds": len(found.adapter_S), "holds_for": ADAPTERS} if found.trained else {"basis": "all"}
    )
    on: dict[bytes, list[tuple[int, int]]] = {}
    for i, j in combinations(range(len(heads)), 2):
        on.setdefault((there_PV[:, i] & there_PV[:, j]).tobytes(), []).append((i, j))
    rows: dict[tuple[int, int], Row] = {}
    for problems, pairs in on.items():
        both_PV = mean_PV[np.frombuffer(problems, bool)]
        about = shared | {"n": len(both_PV), "clusters": len(np.unique(both_PV[:, -1]))}
        intervals = rank_correlations(list(both_PV.T), pairs, both_PV[:, -1])
        for (i, j), one in zip(pairs, intervals, strict=True):
            other = {"other": names[j]["metric"], "other_partition": names[j].get("partition")}
            kept = {name: names[i].get(name) for name in ("metric", "partition", "window")}
            rows[i, j] = kept | other | about | {c: getattr(one, c) for c in ("estimate", "low", "high", "reason")}
    return [rows[pair] for pair in sorted(rows)]


@standard_measure("widths", rollouts="final")
@stage(Widths, version=8)
def measure_widths(
    *,
    rollouts: tuple[Rollouts, ...],
    partitions: tuple[Partitions, ...],
    embeddings: tuple[Embeddings, ...],
    ks: tuple[int, ...],
) -> pa.Table:
    """Return every measure of width of every policy, and their rank correlations over problems. partitions, embeddings:
    one per rollouts."""
    traces = (t for ref in rollouts for part in store().parts(ref, ["trace"]) for t in part["trace"].to_pylist())
    of_each = zip(rollouts, partitions, embeddings, strict=True)
    parts = (part for ref, own, vectors in of_each for part in with_vectors(in_classes(ref, own, COLUMNS), vectors))
    return widths_of(parts, vocabulary_of(traces), ks)
