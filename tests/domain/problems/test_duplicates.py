"""Near-duplicates: shared stems count, phrases of the trade and notes do not."""

from __future__ import annotations

import pytest

from tasks.domain.problems.duplicates import Pair, clusters, near_duplicates

STEM = (
    "In ARMLopolis every house number is a positive integer and City Hall's address is 0. "
    "However due to the curved nature of the cowpaths that eventually became the streets, "
    "an address n that is positive and even lies beside the address n over two, and an odd one beside n plus one. "
)


def test_a_shared_stem_links_and_a_shared_phrase_does_not() -> None:
    texts = [
        STEM + "Compute the distance of house 2020 from City Hall by the shortest way that stays on the streets.",
        STEM + "How many houses lie at distance four or less from City Hall, and which of them are odd numbered?",
        "Compute the number of ordered pairs of positive integers that sum to ten.",
        "Compute the number of ordered triples of positive reals whose product is prime.",
    ]
    assert [(p.first, p.second) for p in near_duplicates(texts)] == [(0, 1)]


def test_clusters_are_transitive() -> None:
    assert clusters(["d", "c", "b", "a"], [Pair(0, 1, 1), Pair(1, 2, 1)]) == ["b", "b", "b", "a"]


def test_a_copy_is_found_however_common_its_words_are() -> None:
    many = [f"What is the value of ${n}$ in all?" for n in range(80)]
    assert [(p.first, p.second) for p in near_duplicates(many[7:8], many)] == [(0, 7)]
    assert Pair(0, 80, 1.0) in near_duplicates([*many, many[0] + " "])


@pytest.mark.parametrize(
    "copy", ["what is 12 + 17?", "What is  12+17 ?", "What is\n$12 \\,+\\, 17$?", r"WHAT IS \( 12 + 17 \):"]
)
def test_so_is_a_copy_that_is_spelt_otherwise(copy: str) -> None:
    """Every word of it stands in more problems than a link may."""
    many = [f"what is {a} + {b}?" for a in range(10, 90) for b in range(10, 90) if (a, b) != (12, 17)]
    assert [p.second for p in near_duplicates(["What is 12 + 17?"], [*many, copy])] == [len(many)]


def test_copies_cost_no_more_than_one_comparison_each() -> None:
    """Folded before they are compared: pairs link every copy to the first one and are linear in the copies."""
    texts = [STEM + f"Question {word} about houses and streets of the city?" for word in ("one", "two", "three")] * 200
    pairs = near_duplicates(texts)
    assert len(pairs) == 597 + 3
    assert set(clusters([f"{i:03}" for i in range(600)], pairs)) == {"000"}
    across = near_duplicates(texts, texts[:300])
    assert len(across) < 9 * len(texts)
    assert {p.first for p in across} == {*range(600)}
    assert {p.second for p in across} == {*range(300)}
