"""The table of widths: rows of one shape, intervals that never have no width, and a reason wherever one is missing. Each
measure against its definition: by hand on a few rollouts, and by going through every subset or order."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import exp, log, prod
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.sql import query
from tasks.domain.statistics.regression import rank_correlations
from tasks.embedding import embedded
from tasks.evidence import VECTORS
from tasks.measures.diversity import answers_of, compare_columns, diversity_of
from tasks.measures.widths import (
    MEASURES,
    PATIENCE,
    Group,
    Measure,
    distinct,
    entropy_by_counts,
    entropy_by_likelihood,
    entropy_by_sequence_likelihood,
    expectation_adjusted_distinct,
    numbered,
    self_bleu,
    utility,
    vocabulary_of,
    widths_of,
)
from tests.measures.conftest import classed_by_letter, rows_of

Row = dict[str, Any]


def classed_rows(groups: dict[str, str]) -> pa.Table:
    """Every partition has these classes; c(orrect) is 0 and w(rong) 1 and 2 in turn."""
    rows = rows_of(groups)
    table = rows.to_pydict()
    told = [{"c": 0, "w": 1 + i % 2}.get(a) for a, i in zip(table["answer"], table["rollout"], strict=True)]
    for name in ("answer", "trace", "strategy"):
        rows = rows.append_column(f"{name}_class", pa.array(told, pa.int32()))
    return rows.append_column("cluster", rows["problem_id"])


def vectors_for(rows: pa.Table) -> pa.Table:
    """One of five orthogonal directions a rollout; none without a trace."""
    kept = query("select problem_id, arm, step, seed, rollout from t where trace is not null", t=rows)
    chosen = np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, kept.num_rows)]
    return kept.append_column("embedding", pa.array(chosen.tolist(), pa.list_(pa.float32()))).select(VECTORS)


def measured(rows: pa.Table, ks: tuple[int, ...] = (1, 2, 4)) -> list[Row]:
    vocabulary = vocabulary_of(rows["trace"].to_pylist())
    return widths_of([(rows, vectors_for(rows))], vocabulary, ks).to_pylist()


def one(rows: list[Row], metric: str, **what: Any) -> Row:
    (found,) = [
        r for r in rows if r["metric"] == metric and r["other"] is None and all(r[k] == v for k, v in what.items())
    ]
    return found


def test_rarefied_distinct_answers_by_hand() -> None:
    rows = measured(classed_rows({"a": "cccc", "b": "ccww", "d": "wwww"}))
    row = one(rows, "distinct_k", partition="answer", basis="all", k=2)
    # 1 | pairs 6: one of one class (cc), five of two | pairs 6: two of one class
    assert row["estimate"] == pytest.approx((1 + 11 / 6 + (2 * 1 + 4 * 2) / 6) / 3)
    assert row["low"] < row["estimate"] < row["high"]
    assert (row["n"], row["clusters"], row["seeds"], row["holds_for"]) == (3, 3, None, None)
    correct = one(rows, "distinct_k", partition="answer", basis="correct", k=2)
    assert (correct["estimate"], correct["n"]) == (1.0, 2)
    assert correct["low"] < 1.0 < correct["high"]


def test_every_row_has_an_interval_or_a_reason() -> None:
    rows = measured(classed_rows(dict.fromkeys("abdefg", "ccwt") | {"h": "tttt", "i": "wwww"}), (1, 2, 4, 8))
    assert {r["metric"] for r in rows if r["other"] is None} == {m.name for m in MEASURES}
    for row in rows:
        told = row["low"] is not None and row["low"] < row["high"] and row["low"] <= row["estimate"] <= row["high"]
        assert told or row["reason"], row
    assert one(rows, "distinct_k", partition="answer", basis="all", k=8)["reason"].startswith("no problem has 8")
    unlikely = one(rows, "semantic_entropy_likelihood", partition="answer", basis="all", k=2)
    assert unlikely["reason"] == "no problem has 2 rollouts with a class and a log-probability"


def test_rank_correlation_by_hand_and_where_it_has_none() -> None:
    def reason(*values: np.ndarray, clusters: np.ndarray) -> str:
        return rank_correlations(values, [(0, 1)], clusters)[0]["reason"]

    x = np.array([1.0, 2, 3, 4, 5, 6])
    [found] = rank_correlations([x, np.array([2.0, 1, 3, 4, 6, 5])], [(0, 1)], x)
    assert found["estimate"] == pytest.approx(1 - 6 * 4 / (6 * 35))
    assert found["low"] < found["estimate"] < found["high"]
    assert reason(x, x**3, clusters=x) == "both order the problems the same way, or the reverse: no interval"
    assert reason(x, np.ones(6), clusters=x) == "every problem is alike in one of the two"
    assert reason(x[:3], x[:3], clusters=x[:3]) == "fewer than 5 problems"
    noise = np.random.default_rng(2).normal(size=(2, 100))
    assert reason(*noise, clusters=np.minimum(np.arange(100), 50)).startswith("a few large clusters")


# Diversity tables: by hand on two-dimensional vectors, and null where there is nothing to compare.


WINDOWS = ("whole", "first256", "head2000chars")


def vectors_of(table: pa.Table, angles: list[float]) -> pa.Table:
    v = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return embedded(table, v, np.full(len(angles), 0.5), "whole")


def test_two_groups_by_hand() -> None:
    table = vectors_of(rows_of({"a": "ccw", "b": "cw"}), [0, 0, np.pi / 2, 0, np.pi])
    a, b = diversity_of(table).to_pylist()
    assert a["diversity"] == pytest.approx(2 / 3, abs=1e-6)  # pairs 0, 1, 1
    assert a["diversity_correct"] == pytest.approx(0.0, abs=1e-6)
    assert (a["n"], a["num_correct"], a["clusters"], a["coverage"]) == (3, 2, 2, 0.5)
    assert a["num_tokens"] == 20.0
    assert a["per_1000_tokens"] == pytest.approx(1000 * a["diversity"] / 20)
    assert b["diversity"] == pytest.approx(2.0, abs=1e-6)
    assert b["diversity_correct"] is None


def test_in_a_window_only_traces_that_fill_it_count() -> None:
    """Of three traces one is as short as to be shown whole: it would be compared by less text than the others."""
    angles = [0, np.pi / 2, np.pi]
    v = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    seen = np.array([0.5, 1.0, 0.25])
    shown = {w: diversity_of(embedded(rows_of({"a": "ccw"}), v, seen, w)).to_pylist()[0] for w in WINDOWS}
    assert (shown["first256"]["n"], shown["first256"]["coverage"]) == (2, 0.375)
    assert shown["first256"]["diversity"] == pytest.approx(2.0, abs=1e-6) and shown["first256"]["num_correct"] == 1
    assert [shown[w]["n"] for w in ("whole", "head2000chars")] == [3, 3]
    none = diversity_of(embedded(rows_of({"a": "ccw"}), v, np.ones(3), "last16")).to_pylist()[0]
    assert (none["n"], none["diversity"], none["reason"]) == (0, None, "no trace is longer than the window")


def test_answers_without_an_encoder() -> None:
    # classes: 0 1 2 | none at all
    table = classed_by_letter(rows_of({"a": "cww", "b": "tt"}))
    rows = {r["problem_id"]: r for r in answers_of(table).to_pylist()}
    assert rows["a"]["entropy"] == pytest.approx(np.log(3) + 2 / 6)
    assert (rows["a"]["disagreement"], rows["a"]["distinct"], rows["a"]["distinct_wrong"]) == (1.0, 3, 2)
    assert (rows["b"]["entropy"], rows["b"]["answered"]) == (None, 0)
    assert rows["b"]["reason"] == "fewer than two rollouts gave an answer"


def test_answers_of_a_group_do_not_depend_on_its_size() -> None:
    """Means over many groups of 6 and of 24 from one population, beside what the plug-in of the entropy gives."""
    rng, chances, found = np.random.default_rng(0), np.array([0.4, 0.3, 0.2, 0.1]), {}
    truth = float(-(chances * np.log(chances)).sum())
    for n in (6, 24):
        classes = rng.choice(4, size=(1500, n), p=chances)
        counts = np.stack([(classes == c).sum(axis=1) for c in range(4)], axis=1)
        plug_in = np.mean([-(p[p > 0] * np.log(p[p > 0])).sum() for p in counts / n])
        policy = {"arm": ["a"] * classes.size, "step": [0] * classes.size, "seed": [0] * classes.size}
        problem, right = np.repeat([f"{i:04d}" for i in range(1500)], n), classes.ravel() == 0
        rollouts = {
            "source": ["s"] * classes.size,
            "problem_id": problem,
            "answer_class": classes.ravel(),
            "correct": right,
        }
        table = answers_of(pa.table(policy | rollouts))
        entropy, found[n] = (float(np.mean(table[name].to_numpy())) for name in ("entropy", "distinct_of_4"))
        assert abs(entropy - truth) < abs(plug_in - truth) / 2
    assert found[6] == pytest.approx(found[24], rel=0.02) == pytest.approx((1 - (1 - chances) ** 4).sum(), rel=0.02)


def test_comparison_pairs_problems_and_says_what_equal_n_leaves() -> None:
    first = diversity_of(vectors_of(rows_of({"a": "cc", "b": "cw", "d": "cc"}), [0, 1, 0, 2, 0, 0.5]))
    second = diversity_of(
        vectors_of(rows_of({"a": "cct", "b": "ccc", "e": "cc"}, arm="thinking"), [0, 0.1, 0, 0.2, 0, 1, 2])
    )
    rows = {(r["metric"], r["basis"]): r for r in compare_columns([first, second], ("diversity",)).to_pylist()}
    row = rows["diversity", "all"]
    assert (row["arm"], row["other"], row["n"]) == ("panel", "thinking", 2)
    a, b = 1 - np.cos(1), 1 - np.cos(2)
    assert row["mean"] == pytest.approx((a + b) / 2, abs=1e-6)
    assert rows["diversity", "equal_n"]["n"] == 1
    assert rows["diversity", "equal_n"]["reason"] == "one problem has no spread"


def test_near_duplicates_are_compared_as_one() -> None:
    """Every problem twice, under one cluster: interval and p stay."""
    angles = {"panel": [0.3, 0.9, 1.4, 0.6], "thinking": [0.2, 0.4, 1.5, 0.1]}
    told = []
    for copies in (1, 2):
        tables = []
        for arm, apart in angles.items():
            problems = {f"{name}{i}": angle for name, angle in zip("abde", apart, strict=True) for i in range(copies)}
            table = rows_of(dict.fromkeys(problems, "cw"), arm=arm)
            measured = diversity_of(vectors_of(table, [v for angle in problems.values() for v in (0.0, angle)]))
            tables.append(
                measured.append_column("cluster", pa.array([p[0] for p in measured["problem_id"].to_pylist()]))
            )
        told.append(compare_columns(tables, ("diversity",)).to_pylist()[0])
    assert [(r["n"], r["clusters"]) for r in told] == [(4, 4), (8, 4)]
    for name in ("low", "high", "p_value", "relative_low", "relative_high"):
        assert told[0][name] == pytest.approx(told[1][name]), name
    assert told[1]["p_t"] < told[0]["p_t"]  # as publications have it: each problem counts


# Each measure against its definition.


Rollout = tuple[int, bool, float]  # class, correct, log-probability
rollouts = st.lists(st.tuples(st.integers(-1, 3), st.booleans(), st.floats(-9.0, -0.1)), min_size=2, max_size=6)


def group_of(found: Sequence[Rollout], texts: Sequence[str] | None = None) -> Group:
    """Traces of one class have one vector, of two classes orthogonal ones. texts: one letter a word."""
    n, class_N = len(found), np.array([c for c, _, _ in found], np.int64)
    words = list(texts or [("abcde"[c] + "xyzxyz")[:6] for c, _, _ in found])
    return Group(
        class_N=class_N,
        correct_N=np.array([right and c >= 0 for c, right, _ in found], bool),
        logprob_N=np.array([p for _, _, p in found]),
        num_tokens_N=np.ones(n),
        vectors_ND=np.eye(5)[class_N],
        word_NT=numbered(words),
        vocabulary=len(set("".join(words))),
    )


@given(rollouts)
def test_utility_is_that_of_noveltybench_over_all_orders(found: list[Rollout]) -> None:
    for k in range(1, len(found) + 1):
        told = []
        for order in permutations([(c, right and c >= 0) for c, right, _ in found]):
            seen: set[int] = set()
            total = 0.0
            for i, (c, right) in enumerate(order[:k]):
                total += PATIENCE**i * right * (c not in seen)
                seen.add(c)
            told.append((1 - PATIENCE) / (1 - PATIENCE**k) * total)
        assert utility(group_of(found), k) == pytest.approx(float(np.mean(told)))


def entropy(masses: Sequence[float]) -> float:
    return -sum(m / sum(masses) * log(m / sum(masses)) for m in masses)


@given(rollouts)
def test_counts_and_likelihoods_go_through_every_subset(found: list[Rollout]) -> None:
    whole_group = replace(group_of(found), num_tokens_N=np.full(len(found), 2.0))
    group = whole_group.only(whole_group.class_N >= 0)
    for k in range(2, len(group) + 1):
        distincts, counted, weighed, whole = [], [], [], []
        for some in combinations(range(len(group)), k):
            classes = group.class_N[list(some)]
            distincts.append(len(set(classes.tolist())))
            counted.append(entropy(list(Counter(classes.tolist()).values())))
            for told, length in ((weighed, 2.0), (whole, 1.0)):
                mass = {
                    c: sum(exp(group.logprob_N[i] / length) for i in some if group.class_N[i] == c) for c in classes
                }
                told.append(entropy(list(mass.values())))
        assert distinct(group, k) == pytest.approx(float(np.mean(distincts)))
        assert entropy_by_counts(group, k) == pytest.approx(float(np.mean(counted)))
        assert entropy_by_likelihood(group, k) == pytest.approx(float(np.mean(weighed)))
        assert entropy_by_sequence_likelihood(group, k) == pytest.approx(float(np.mean(whole)))


def bleu(text: str, references: Sequence[str]) -> float:
    """As Papineni et al. define it, of texts of one length."""
    precisions = []
    for order in (1, 2, 3, 4):
        grams = [Counter(t[i : i + order] for i in range(len(t) - order + 1)) for t in (text, *references)]
        match = sum(min(times, max(r[gram] for r in grams[1:])) for gram, times in grams[0].items())
        precisions.append((match or 0.1) / sum(grams[0].values()))
    return prod(precisions) ** 0.25


@given(st.lists(st.text("abc", min_size=6, max_size=6), min_size=3, max_size=5))
def test_self_bleu_goes_through_every_subset(texts: list[str]) -> None:
    group = group_of([(0, True, -1.0)] * len(texts), texts)
    for k in (2, 3):
        told = [
            bleu(texts[i], [texts[j] for j in some if j != i])
            for some in combinations(range(len(texts)), k)
            for i in some
        ]
        assert self_bleu(group, k) == pytest.approx(float(np.mean(told)))


def test_ead_by_hand() -> None:
    # 7 different letters in 12, of a vocabulary of 7
    two = group_of([(0, True, -1.0)] * 2, ["abcdef", "abcdeg"])
    assert expectation_adjusted_distinct(two, 2) == pytest.approx(7 / (7 * (1 - (6 / 7) ** 12)))
    many = replace(two, vocabulary=10**6)  # chance repeats nothing: distinct-1
    assert expectation_adjusted_distinct(many, 2) == pytest.approx(7 / 12, abs=1e-4)


measures = st.sampled_from(MEASURES)


@given(rollouts, measures, st.randoms(use_true_random=False))
def test_the_order_of_rollouts_does_not_matter(found: list[Rollout], measure: Measure, random: object) -> None:
    group = looked_at(group_of(found), measure)
    order = np.random.default_rng(random.randrange(1 << 30)).permutation(len(group))  # type: ignore[attr-defined]
    mixed = group.only(order)
    for k in range(2, len(group) + 1):
        assert measure.value(mixed, k) == pytest.approx(measure.value(group, k))


def looked_at(group: Group, measure: Measure) -> Group:
    return group.only(group.class_N >= 0) if measure.of == "partition" and not measure.unclassed else group


@given(rollouts, measures)
def test_every_value_lies_between_its_bounds(found: list[Rollout], measure: Measure) -> None:
    group = looked_at(group_of(found), measure)
    for k in range(2, len(group) + 1):
        value = measure.value(group, k)
        assert isinstance(value, float | int)
        assert measure.least - 1e-9 <= value <= measure.most(group, k) + 1e-9
