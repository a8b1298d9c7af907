"""Measures of width: how many different classes, traces or words a problem's rollouts have. Each measure is a function
of a group and k, with formula and source, and an entry of MEASURES. The table has the width of each policy by every
measure, and the rank correlations of the measures with each other, with length and with accuracy."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import combinations, islice
from math import comb, log
from typing import Literal, Self

import numpy as np
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Embeddings, Partitions, Rollouts
from tasks.domain.statistics.estimators import subsets, vendi_of_k
from tasks.domain.statistics.means import ADAPTERS
from tasks.domain.statistics.regression import rank_correlations
from tasks.evidence import VECTORS, matrix, standard_measure, with_vectors
from tasks.measures.groups import Row, counts_of, estimates, in_classes, seeded, stretches
from tasks.stage import stage, store

# The input of a measure is one problem's rollouts under one policy.
#
# Axes: N rollouts, T words of a window, G n-grams, S subsets of k, C classes.
#
# Every measure is a mean over all subsets of k of the n rollouts. So its expected value does not depend on n, and
# policies with different n can be compared.

ORDERS = (1, 2, 3, 4)


def times_of(gram_NT: np.ndarray) -> np.ndarray:
    """Return times_NG: how often each text has each n-gram."""
    n, size = len(gram_NT), int(gram_NT.max(initial=-1)) + 1
    return np.bincount((gram_NT + size * np.arange(n)[:, None]).ravel(), minlength=n * size).reshape(n, size)


def shared_by_several(gram_NT: np.ndarray) -> np.ndarray:
    """Return has_NG, see `Group.shared_grams`.

    >>> shared_by_several(np.array([[0, 1, 1], [3, 1, 1], [4, 5, 1]])).astype(int).tolist()
    [[1, 1], [1, 1], [1, 0]]
    """
    times_NG, found = times_of(gram_NT), [np.zeros((len(gram_NT), 0), np.float32)]
    while (times_NG := times_NG[:, (times_NG > 0).sum(axis=0) > 1]).size:
        found.append((times_NG > 0).astype(np.float32))
        times_NG = times_NG - 1
    return np.concatenate(found, axis=1)


@dataclass(frozen=True)
class Group:
    """One problem's rollouts. class_N: class of each in the chosen partition, −1 for none. logprob_N, num_tokens_N: of
    whole completions, NaN if unknown. vectors_ND: embeddings of traces, NaN if unknown. word_NT: the first words of
    each trace, up to the window's length, as numbers. vocabulary: number of different words in such windows over all
    policies."""

    class_N: np.ndarray
    correct_N: np.ndarray
    logprob_N: np.ndarray
    num_tokens_N: np.ndarray
    vectors_ND: np.ndarray
    word_NT: np.ndarray
    vocabulary: int = 0

    def __len__(self) -> int:
        return len(self.class_N)

    def only(self, at_N: np.ndarray) -> Self:
        """Return the group with only these rollouts. at_N: indices or a mask."""
        arrays = [field.name for field in fields(self) if field.name != "vocabulary"]
        return replace(self, **{name: getattr(self, name)[at_N] for name in arrays})

    @property
    def counts(self) -> np.ndarray:
        """Return the number of rollouts of each class, largest first."""
        return np.sort(np.unique(self.class_N[self.class_N >= 0], return_counts=True)[1])[::-1]

    @cached_property
    def shared_grams(self) -> list[np.ndarray]:
        """Return has_NG by order: whether trace N has n-gram G, for n-grams that occur in several traces. If an n-gram
        occurs twice in a trace, the second occurrence counts as another n-gram."""
        gram_NT, found = self.word_NT, [shared_by_several(self.word_NT)]
        for order in ORDERS[1:]:
            longer_NT = gram_NT[:, :-1] * (self.word_NT.max(initial=0) + 1) + self.word_NT[:, order - 1 :]
            gram_NT = np.unique(longer_NT, return_inverse=True)[1].reshape(longer_NT.shape)
            found.append(shared_by_several(gram_NT))
        return found


@lru_cache(maxsize=4096)
def none_of(n: int, size: int, k: int) -> float:
    """Return the chance that k of n rollouts contain no member of a class of this size.

    >>> none_of(4, 2, 2)
    0.16666666666666666
    """
    return comb(n - size, k) / comb(n, k)


def distinct(group: Group, k: int) -> float:
    """Return the expected number of distinct classes among k rollouts, Σ_c [1 − C(n − n_c, k) / C(n, k)], where n_c is
    the size of class c. The measure is NoveltyBench's distinct_k (Zhang et al. 2025, arXiv 2504.05228), averaged over
    all subsets of k; ecology calls it rarefaction (Hurlbert 1971). A rollout without a class adds nothing. The value
    lies between 0 (1 if all rollouts have a class) and k."""
    return sum(1.0 - none_of(len(group), int(size), k) for size in group.counts)


PATIENCE = 0.8


def utility(group: Group, k: int) -> float:
    """Return the utility (0 to 1) of k rollouts for a reader who goes on to the next with probability p = PATIENCE.

    The utility is (1 − p)/(1 − p^k) · Σ_{i=1..k} p^(i−1) · 1[class i is new] · u_i. u_i is 1 for a correct rollout with
    a class; NoveltyBench (Zhang et al. 2025, arXiv 2504.05228) has a reward model's score there. The mean is over all
    orders of the n rollouts. A rollout whose class has n_c members is the first of its class, at place i, with chance
    C(n − n_c, i − 1) / C(n − 1, i − 1) / n.
    """
    n, weights = len(group), PATIENCE ** np.arange(k)
    classes, at_N, size_C = np.unique(group.class_N, return_inverse=True, return_counts=True)
    right_C = np.bincount(at_N, weights=group.correct_N & (group.class_N >= 0), minlength=len(classes))
    earned = 0.0
    for size, right in zip(size_C, right_C, strict=True):
        if right:
            first = [comb(n - int(size), i) / comb(n - 1, i) / n for i in range(k)]
            earned += right * float(weights @ first)
    return earned / float(weights.sum())


def entropy_by_counts(group: Group, k: int) -> float:
    """Return the semantic entropy −Σ_c p_c log p_c of k rollouts, in nats (Farquhar et al. 2024, Nature 630). p_c is
    the share of class c. This plug-in estimate grows with k from 0 to log k, so compare policies at the same k."""
    n = len(group)
    return sum(_expected(n, int(size), k) for size in group.counts)


@lru_cache(maxsize=4096)
def _expected(n: int, size: int, k: int) -> float:
    """Return the expected −p log p, where p is the share of a class of this size among k rollouts drawn from n."""
    ways = ((j, comb(size, j) * comb(n - size, k - j)) for j in range(1, min(size, k) + 1))
    return sum(-(j / k) * log(j / k) * w for j, w in ways) / comb(n, k)


def entropy_by_likelihood(group: Group, k: int) -> float:
    """Return the semantic entropy with p_c ∝ Σ_{i in c} exp(mean log-prob per token), as in the authors' code."""
    return _weighted(group, group.logprob_N / np.maximum(group.num_tokens_N, 1), k)


def entropy_by_sequence_likelihood(group: Group, k: int) -> float:
    """Return the semantic entropy with p_c ∝ Σ_{i in c} exp(log-prob of the sequence), as in the authors' formula. For
    long traces one rollout has almost all the weight."""
    return _weighted(group, group.logprob_N, k)


def _weighted(group: Group, log_weight_N: np.ndarray, k: int) -> float:
    chosen_SK = subsets(len(group), k)
    log_SK = log_weight_N[chosen_SK]
    weight_SK = np.exp(log_SK - log_SK.max(axis=1, keepdims=True))
    classes, at_N = np.unique(group.class_N, return_inverse=True)
    mass_SC = np.zeros((len(chosen_SK), len(classes)))
    np.add.at(mass_SC, (np.arange(len(chosen_SK))[:, None], at_N[chosen_SK]), weight_SK)
    p_SC = mass_SC / mass_SC.sum(axis=1, keepdims=True)
    return float(-(p_SC * np.log(np.where(p_SC > 0, p_SC, 1.0))).sum(axis=1).mean())


UNSEEN = 0.1


def self_bleu(group: Group, k: int) -> float:
    """Return the self-BLEU of k windows: each window against the others as references (Zhu et al. 2018, arXiv
    1802.01886). A high value means little width.

    BLEU is of order 4 with uniform weights (Papineni et al. 2002): the geometric mean of clipped precisions of 1- to
    4-grams, averaged over subsets of k. All windows have the same length, so there is no brevity penalty. UNSEEN
    replaces an order without a match, as in the authors' code (NLTK's smoothing 1), here also order 1. With 16 words,
    0.007 means nothing shared, and 1 means all equal.
    """
    chosen_SK = subsets(len(group), k)
    member_SN = np.zeros((len(chosen_SK), len(group)), np.float32)
    np.put_along_axis(member_SN, chosen_SK, 1, axis=1)
    log_SK = np.zeros(chosen_SK.shape)
    for order, has_NG in zip(ORDERS, group.shared_grams, strict=True):
        match_SN = ((member_SN @ has_NG) > 1).astype(np.float32) @ has_NG.T  # n-grams that another trace also has
        match_SK = np.take_along_axis(match_SN, chosen_SK, axis=1).astype(np.float64)
        total = group.word_NT.shape[1] - order + 1
        log_SK += np.log(np.where(match_SK > 0, match_SK, UNSEEN) / total) / len(ORDERS)
    return float(np.exp(log_SK).mean())


def expectation_adjusted_distinct(group: Group, k: int) -> float:
    """Return the different words of k windows, divided by the number expected by chance: D / (V · [1 − ((V − 1)/V)^C]).

    D: different words of the k windows, averaged over subsets. C: words in the windows. V: the vocabulary, here the
    different words in the windows of all compared policies (Liu et al. 2022, arXiv 2202.13587). All windows have the
    same length, so C is constant and V only scales the value. Above 1, words repeat less often than by chance.
    """
    traces_G = (times_of(group.word_NT) > 0).sum(axis=0)  # number of traces that contain each word
    traces, words = np.unique(traces_G[traces_G > 0], return_counts=True)
    seen = [1.0 - none_of(len(group), int(n), k) for n in traces]
    return float(words @ seen) / _by_chance(group, k)


def most_of_ead(group: Group, k: int) -> float:
    """Return the largest value of expectation_adjusted_distinct, where no word repeats before the vocabulary is used
    up."""
    return min(group.vocabulary, k * group.word_NT.shape[1]) / _by_chance(group, k)


def _by_chance(group: Group, k: int) -> float:
    return group.vocabulary * (1.0 - (1.0 - 1.0 / group.vocabulary) ** (k * group.word_NT.shape[1]))


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of width. value: a function of at least k rollouts. of: its input. Rollouts without this input are left
    out. So are rollouts without a class (unless `unclassed`), and with `likelihood` those without a log-probability.
    least, most: bounds, used for intervals."""

    name: str
    value: Callable[[Group, int], float | None]
    of: Literal["partition", "vectors", "words"]
    most: Callable[[Group, int], float]
    least: float = 0.0
    unclassed: bool = False
    likelihood: bool = False


MEASURES = (
    Measure("distinct_k", distinct, "partition", lambda _, k: float(k), unclassed=True),
    Measure("utility_k", utility, "partition", lambda _, k: 1.0, unclassed=True),
    Measure("semantic_entropy", entropy_by_counts, "partition", lambda _, k: log(k)),
    Measure("semantic_entropy_likelihood", entropy_by_likelihood, "partition", lambda _, k: log(k), likelihood=True),
    Measure(
        "semantic_entropy_sequence", entropy_by_sequence_likelihood, "partition", lambda _, k: log(k), likelihood=True
    ),
    # from 1 to k; it depends on the length of traces
    Measure("vendi", lambda group, k: vendi_of_k(group.vectors_ND, k), "vectors", lambda _, k: float(k), least=1.0),
    Measure("self_bleu", self_bleu, "words", lambda _, k: 1.0),
    Measure("ead", expectation_adjusted_distinct, "words", most_of_ead),
)


# ---- every measure of width on every problem

PARTITIONS = ("answer", "trace", "strategy")
BASES = ("all", "correct")
#: Lengths of windows in words. Shorter traces are left out of a window, so that compared texts have equal length.
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
    """A measure with its options, which identify its rows for a policy and k. partition: only for classes."""

    measure: Measure
    partition: str | None
    basis: str
    window: int | None

    def head(self, k: int) -> Row:
        """Return the first fields of a row, and `why` as the reason for a missing number."""
        which = "correct " if self.basis == "correct" else ""
        none = NONE["likelihood" if self.measure.likelihood else self.measure.of]
        named = {"metric": self.measure.name, "partition": self.partition, "window": self.window}
        return named | {"basis": self.basis, "k": k, "why": none.format(k=k, which=which, window=self.window)}

    def seen(self, group: Group, classes: Mapping[str, np.ndarray], vocabulary: Mapping[int, int]) -> Group:
        """Return the rollouts that this series uses. group: with the longest window, −1 after a trace's last word."""
        measure, kept_N = self.measure, np.ones(len(group), bool)
        if self.basis == "correct":
            kept_N &= group.correct_N
        if measure.of == "vectors":
            kept_N &= np.isfinite(group.vectors_ND).all(axis=1)
        if self.window is not None:
            word_NT = group.word_NT[:, : self.window]
            kept_N &= (word_NT >= 0).sum(axis=1) == self.window
            group = replace(group, word_NT=word_NT, vocabulary=vocabulary[self.window])
        if self.partition is not None:
            group = replace(group, class_N=classes[self.partition])
            kept_N &= (group.class_N >= 0) | measure.unclassed
        if measure.likelihood:
            kept_N &= np.isfinite(group.logprob_N)
        return group if kept_N.all() else group.only(kept_N)


def series_of(windows: Sequence[int]) -> Iterator[Series]:
    for measure in MEASURES:
        for partition in PARTITIONS if measure.of == "partition" else (None,):
            for window in windows if measure.of == "words" else (None,):
                for basis in BASES:
                    yield Series(measure, partition, basis, window)


def words_of(trace: str | None) -> list[str]:
    """Return the first words, numbers and signs of a trace, as many as the longest window has.

    >>> words_of("So x=12."), words_of(None)
    (['so', 'x', '=', '12', '.'], [])
    """
    found = () if trace is None else islice(_WORD.finditer(trace), max(WINDOWS))
    return [match[0].lower() for match in found]


def vocabulary_of(traces: Iterable[str | None]) -> dict[int, int]:
    """Return window → number of different words, for windows that some trace fills (else for the shortest window)."""
    held: dict[int, set[str]] = {window: set() for window in WINDOWS}
    for trace in traces:
        words = words_of(trace)
        for window, known in held.items():
            known.update(words[:window] if len(words) >= window else ())
    return {window: len(known) for window, known in held.items() if known} or {WINDOWS[0]: 0}


def numbered(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Return word_NT: the words of each text as numbers, and −1 after its end.

    >>> numbered(["aba", "b"]).tolist()
    [[0, 1, 0], [1, -1, -1]]
    """
    known: dict[str, int] = {}
    word_NT = np.full((len(texts), max(map(len, texts), default=0)), -1)
    for row_T, words in zip(word_NT, texts, strict=True):
        row_T[: len(words)] = [known.setdefault(word, len(known)) for word in words]
    return word_NT


def problems_of(rollouts: pa.Table, vectors: pa.Table) -> Iterator[tuple[Row, Group, dict[str, np.ndarray]]]:
    """Yield every problem under every policy: (key, group, classes by partition). rollouts: with classes and `cluster`.
    vectors: embeddings of whole traces, by policy, problem and rollout."""
    place = {key: i for i, key in enumerate(zip(*(vectors[c].to_pylist() for c in VECTORS[:-1]), strict=True))}
    vectors_ND = matrix(vectors["embedding"]) if vectors.num_rows else np.zeros((0, 1))
    with_none_ND = np.vstack([vectors_ND, np.full((1, vectors_ND.shape[1]), np.nan)])
    keys = ["arm", "step", "adapter", "seed", "problem_id"]
    ordered = rollouts.sort_by([(name, "ascending") for name in [*keys, "rollout"]])
    for key, some in stretches(ordered, [*keys, "cluster"]):
        rows = ordered.slice(some.start, some.stop - some.start)
        classes = {name: rows[f"{name}_class"].fill_null(-1).to_numpy() for name in PARTITIONS}
        mine = zip(*(rows[c].to_pylist() for c in VECTORS[:-1]), strict=True)
        group = Group(
            class_N=classes["answer"],
            correct_N=np.array(rows["correct"].to_pylist(), bool),
            logprob_N=np.array(rows["logprob_sum"].to_pylist(), np.float64),
            num_tokens_N=rows["num_tokens"].to_numpy().astype(np.float64),
            vectors_ND=with_none_ND[[place.get(one, len(vectors_ND)) for one in mine]],
            word_NT=numbered([words_of(trace) for trace in rows["trace"].to_pylist()]),
        )
        yield key | {"adapter": key["adapter"] or ""}, group, classes


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
    """Width by every measure, or with `other` the rank correlation of two measures over problems."""


def widths_of(parts: Iterable[Part], vocabulary: Mapping[int, int], ks: Sequence[int]) -> pa.Table:
    """Return one row per measure, partition or window, basis (all or correct rollouts), policy and k, and one per two
    measures and policy, at the largest k of at most half a group. parts: rollouts of whole problems and their vectors,
    see problems_of. vocabulary: over all parts."""
    several, above_one = list(series_of(sorted(vocabulary))), [k for k in ks if k > 1]
    heads = [series.head(k) for series in several for k in above_one]
    keys, shares, most = list[Row](), list[list[float]](), [1.0] * len(heads)
    for key, whole, classes in (problem for part in parts for problem in problems_of(*part)):
        shares.append([])
        for series in several:
            group, measure = series.seen(whole, classes, vocabulary), series.measure
            for k in above_one:
                value = measure.value(group, k) if len(group) >= k else None
                if value is not None:
                    most[len(shares[-1])] = top = measure.most(group, k)
                    value = (value - measure.least) / (top - measure.least)
                shares[-1].append(np.nan if value is None else value)
        about = {"source": "all", "row": len(keys), "size": len(whole)}
        keys.append(key | about | {"length": whole.num_tokens_N.mean(), "accuracy": whole.correct_N.mean()})
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
    """Correlate every two measures of one policy, and each with mean length and accuracy. of: columns of the policy's
    problems. heads: column → first fields of its rows."""
    heads = {**heads, "length": {"metric": "length"}, "accuracy": {"metric": "accuracy"}}
    found, names = seeded(of, list(heads)), list(heads.values())
    mean_PV = found.values_SPV.mean(axis=0)
    there_PV = np.isfinite(mean_PV)
    shared: Row = {"basis": "all"}
    shared |= {"seeds": len(found.adapter_S), "holds_for": ADAPTERS} if found.trained else {}
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
            rows[i, j] = kept | other | about | one
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
    """Return all widths of every policy, and their rank correlations. partitions, embeddings: one per artifact."""
    traces = (t for ref in rollouts for part in store().parts(ref, ["trace"]) for t in part["trace"].to_pylist())
    of_each = zip(rollouts, partitions, embeddings, strict=True)
    parts = (part for ref, own, vectors in of_each for part in with_vectors(in_classes(ref, own, COLUMNS), vectors))
    return widths_of(parts, vocabulary_of(traces), ks)
