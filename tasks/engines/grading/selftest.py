"""The grader's adversarial suite: false positives and false negatives by family of cases.

Every case is a line of `cases/*.jsonl`, and a person decided it: a family, an answer (or the whole completion of a
scaffold), a gold, and the expected verdict. In texts, a list [text, times] stands for a repeated text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

from tasks.domain.grading.grading import Verdict
from tasks.domain.scaffolds import PANEL, THINKING
from tasks.engines.grading.graders import GradeItem, Graders

_FOLDER = files("tasks.engines.grading") / "cases"
NOT_CORRECT = "not correct"
#: Expected verdict on a correct answer that the grader does not understand and may reject.
REFUSED = "refused"
#: Families about the answer tag itself. The cases of other families are also graded in a box.
TAG_ONLY = (
    "boxed inside the answer",
    "several boxes",
    "empty",
    "unbalanced LaTeX",
    "pathological",
    "many answers to one gold",
    "boxes in a sentence",
    "beside a box",
)


class Case(NamedTuple):
    """A labelled case. expected: a verdict, `not correct` for any reason, or `refused` for a correct answer that the
    grader does not understand."""

    family: str
    item: GradeItem
    expected: str

    def fault(self, got: Verdict) -> str:
        """Return `false positive`, `false negative`, `other reason` (not the expected verdict), or empty."""
        if self.expected in ("correct", REFUSED):
            return "" if got.correct or self.expected == REFUSED else "false negative"
        if got.correct:
            return "false positive"
        return "" if self.expected in (NOT_CORRECT, got.verdict) else "other reason"


class Outcome(NamedTuple):
    case: Case
    got: Verdict
    fault: str


def read_cases(name: str) -> list[dict[str, Any]]:
    """Return the rows of one file of cases, with their texts written out."""
    lines = _FOLDER.joinpath(f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [
        {field: v if isinstance(v, str) else "".join(text * times for text, times in v) for field, v in row.items()}
        for row in map(json.loads, filter(None, lines))
    ]


def cases() -> list[Case]:
    """Return all cases: each answer in `<answer>`, mostly in a box too, and whole completions."""
    names = sorted(path.name.removesuffix(".jsonl") for path in _FOLDER.iterdir())
    return [case for name in names if name != "peers" for row in read_cases(name) for case in _cases(row)]


def _cases(row: dict[str, str]) -> Iterator[Case]:
    family, gold, expected = row["family"], row["gold"], row["expected"]
    if "completion" in row:
        yield Case(family, GradeItem(row["scaffold"], row["completion"], gold, row["finish"]), expected)
        return
    answer = row["answer"]
    yield Case(family, GradeItem(PANEL, PANEL.answer_in_form(answer), gold), expected)
    if family not in TAG_ONLY and answer.count("{") == answer.count("}"):
        yield Case(family, GradeItem(THINKING, THINKING.answer_in_form(answer), gold), expected)


def run_selftest(graders: Graders) -> list[Outcome]:
    suite = cases()
    verdicts = graders.grade([case.item for case in suite])
    return [Outcome(case, got, case.fault(got)) for case, got in zip(suite, verdicts, strict=True)]
