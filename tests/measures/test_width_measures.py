"""Each measure of width against its definition: by hand on a few rollouts, and by going through every subset or order."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import exp, log, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
)

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
