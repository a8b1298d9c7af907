"""What the checker sees in golds and texts, and that the pool says what it did about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest

from tasks.domain.grading.grading import Verdict
from tasks.domain.problems.gold_check import findings_of_text, perturbed
from tasks.domain.problems.problems import PoolPolicy, grade_exactly, pool_rows
from tasks.domain.scaffolds import PANEL, SCAFFOLDS, AnswerForm


def _codes(gold: str, problem: str = "Find it.") -> list[str]:
    _, issues = pool_rows([{"problem": problem, "gold": gold, "source": "s", "source_id": "1"}])
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
        (r"frac{\pi}{3}", "gold_backslash"),
        ("k=3", "gold_named"),
        (r"\sqrt{5", "gold_unbalanced"),
    ],
)
def test_defects_of_golds(gold: str, code: str) -> None:
    assert code in _codes(gold)


@pytest.mark.parametrize(
    ("problem", "codes"),
    [
        ("In the figure below, find x.", ["missing_figure"]),
        ("In the figure below, find x. [asy] draw((0,0)--(1,1)); [/asy]", []),
        ("Find a sequence satisfying the condition in part (a).", ["dangling_reference"]),
        ("Prove that there are infinitely many, and find the least.", ["proof_wording"]),
        (r"Solve $a \& = b$ <br> for $a$.", ["markup"]),
    ],
)
def test_defects_of_texts(problem: str, codes: list[str]) -> None:
    assert [f.code for f in findings_of_text(problem)] == codes


@pytest.mark.parametrize("gold", ["7", "1, 3", "(1,2)", "[0,1)", r"\{1,2\}", "f(x)=x", r"(0,1)\cup(2,3)", "even"])
def test_perturbed_golds_are_other_answers(gold: str) -> None:
    assert gold not in perturbed(gold)
    assert perturbed(gold)


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
