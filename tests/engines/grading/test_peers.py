"""Cases of other graders' test suites, as facts: (gold, answer, what a person says), with their sources.

Rows are in `tasks/engines/grading/cases/peers.jsonl`. Some are marked arguable, with the reason: there people differ, and
the project's choice is in `docs/grader.md`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tasks.domain.grading.grading import Verdict
from tasks.domain.scaffolds import NO_PANEL
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.grading.selftest import read_cases

#: Right answers that are refused, all of them: a bare `m²` may be a variable.
REFUSED = {("1000.99", "1,000.99 m²")}


@pytest.fixture(scope="module")
def graded() -> list[tuple[dict[str, str], Verdict]]:
    rows = read_cases("peers")
    with Graders() as graders:
        items = [GradeItem("no_panel", NO_PANEL.answer_in_form(row["answer"]), row["gold"]) for row in rows]
        return list(zip(rows, graders.grade(items), strict=True))


def test_every_source_is_named_and_nothing_stands_twice(graded: list[tuple[dict[str, str], Verdict]]) -> None:
    rows = [row for row, _ in graded]
    assert len(rows) == len({(row["gold"], row["answer"]) for row in rows}) == 396
    assert sum("arguable" in row for row in rows) == 35
    sources = Counter(row["source"].split(" tests/")[0].split(" ")[0] for row in rows)
    assert set(sources) == {"Math-Verify", "MATH", "TRL", "verifiers", "MARIO_EVAL", "lighteval"}


def test_no_wrong_answer_is_accepted(graded: list[tuple[dict[str, str], Verdict]]) -> None:
    clean = [(row, verdict) for row, verdict in graded if "arguable" not in row and row["expected"] != "correct"]
    assert len(clean) == 75
    assert [(row["gold"], row["answer"], verdict.reason) for row, verdict in clean if verdict.correct] == []


def test_right_answers_are_accepted(graded: list[tuple[dict[str, str], Verdict]]) -> None:
    clean = [(row, verdict) for row, verdict in graded if "arguable" not in row and row["expected"] == "correct"]
    assert len(clean) == 286
    assert {(row["gold"], row["answer"]) for row, verdict in clean if not verdict.correct} == REFUSED
