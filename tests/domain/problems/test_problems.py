"""Problems: made-up arithmetic, near-duplicates, and golds that grade themselves."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.grading.grading import Verdict
from tasks.domain.problems.arithmetic import SOURCES, STEPS_OF_LEVEL, draw_problem
from tasks.domain.problems.duplicates import near_duplicates
from tasks.domain.problems.problems import PoolPolicy, grade_exactly, pool_rows
from tasks.domain.scaffolds import PANEL, SCAFFOLDS, AnswerForm

levels, seeds = st.sampled_from(sorted(STEPS_OF_LEVEL)), st.integers(0, 10_000)
sources = st.sampled_from(list(SOURCES))


def by_hand(text: str) -> int:
    """The gold by reading the text, sentence by sentence: a second way to it that shares no code with the first."""
    start, *sentences = re.split(r"(?<=[.?]) ", text)
    numbers = [int(n) for n in re.findall(r"\d+", start)]
    value = numbers[0] * numbers[1] if "boxes" in start else numbers[0]
    for sentence in sentences:
        n = int((re.findall(r"\d+", sentence) or ["0"])[0])
        if re.search("Add|gets|come", sentence):
            value += n
        elif re.search("Take|loses|go", sentence):
            value -= n
        elif "division" in sentence:
            value %= n
    return value


@settings(deadline=None)
@given(source=sources, level=levels, seed=seeds)
def test_gold_is_what_the_text_says(source: str, level: int, seed: int) -> None:
    p = draw_problem(source, level, random.Random(seed))
    assert p.gold == str(by_hand(p.text))
    assert len(p.steps) == STEPS_OF_LEVEL[level]
    assert all(0 <= s.value <= 99 for s in p.steps)
    assert "  " not in p.text


# Near-duplicates: shared stems count, phrases of the trade and notes do not.


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


# What the checker sees in golds and texts, and that the pool says what it did about it.


def _codes(gold: str) -> list[str]:
    _, issues = pool_rows([{"problem": "Find it.", "gold": gold, "source": "s", "source_id": "1"}])
    return [row["code"] for row in issues]


@pytest.mark.parametrize(
    ("gold", "code"),
    [
        ("69$,$84", "gold_markup"),
        (r"8 \%", "gold_unit"),
        ("4.25", "gold_decimal"),
        ("0,5", "gold_separator"),
        ("nan", "gold_no_answer"),
        ('["2", "9"]', "gold_no_answer"),
        ("\frac{1}{2}", "gold_no_answer"),
        ("\nu", "gold_no_answer"),
        ("undefined", "gold_no_answer"),
        ("-", "gold_no_answer"),
        ("?", "gold_no_answer"),
        (r"frac{\pi}{3}", "gold_backslash"),
        ("k=3", "gold_named"),
        (r"\sqrt{5", "gold_unbalanced"),
    ],
)
def test_defects_of_golds(gold: str, code: str) -> None:
    assert code in _codes(gold)


def test_policy_decides_and_says_so() -> None:
    rows = [
        {"problem": "One.", "gold": "4.25", "source": "s", "source_id": "1"},
        {"problem": "Two.", "gold": "4", "source": "s", "source_id": "2"},
    ]
    pool, issues = pool_rows(rows, policy=PoolPolicy(also_exclude=("gold_decimal",)))
    assert [row["source_id"] for row in pool] == ["2"]
    assert [row["excluded"] for row in issues if row["code"] == "gold_decimal"] == [True]
    pool, issues = pool_rows(rows)
    assert len(pool) == 2
    assert not any(row["excluded"] for row in issues)


def test_the_same_text_twice_enters_once_whatever_the_policy() -> None:
    rows = [
        {"problem": "One.", "gold": g, "source": "s", "source_id": i} for i, g in (("1", "4"), ("2", "4"), ("3", "5"))
    ]
    pool, issues = pool_rows(rows, policy=PoolPolicy(on_issue="keep"))
    assert len(pool) == 1
    assert [row["code"] for row in issues] == ["duplicate", "duplicate_with_other_gold"]


def test_kept_out_problems_never_enter() -> None:
    text = "A rectangular box has edges of length three, four and five and is cut by one plane; find the area."
    rows = [
        {"problem": text, "gold": "4", "source": "s", "source_id": "1"},
        {"problem": "Find the least prime above one hundred.", "gold": "101", "source": "s", "source_id": "2"},
    ]
    pool, issues = pool_rows(rows, policy=PoolPolicy(on_issue="keep"), kept_out=[text])
    assert [row["source_id"] for row in pool] == ["2"]
    assert [row["code"] for row in issues] == ["evaluation_problem"]


def test_golds_are_graded_in_every_answer_form_whatever_arms_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an arm more, or a reworded one, makes no other pool."""
    asked: list[tuple[str, str, str, str]] = []

    def listening(probes: Sequence[tuple[str, str, str, str]]) -> list[Verdict]:
        asked.extend(probes)
        return grade_exactly(probes)

    row = {"problem": "Find it.", "gold": "7", "source": "s", "source_id": "1"}
    before = pool_rows([row], listening)
    assert {form for form, *_ in asked} == {*get_args(AnswerForm)} - {"final"}  # of imported completions alone
    number = len(asked)
    monkeypatch.setitem(SCAFFOLDS, "jury", replace(PANEL, name="jury", trace_tag="jury", answer_form="boxed"))
    after = pool_rows([row], listening)
    assert len(asked) == 2 * number and after == before
