"""The grader's adversarial suite, run on the real thing: false positives and negatives by family.

Every case is a line of `cases/*.jsonl`, decided by hand: a family, an answer (or a whole completion of a scaffold), a
gold, and the verdict that is expected. Texts that repeat themselves are lists of [text, times].
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tasks.domain.grading.grading import Verdict
from tasks.domain.scaffolds import PANEL, THINKING
from tasks.engines.grading.graders import GradeItem, Graders

_FOLDER = files("tasks.engines.grading") / "cases"
NOT_CORRECT = "not correct"
#: A right answer that the grader does not read, and may refuse.
REFUSED = "refused"
#: Families that are about the tag itself; every other family is judged in a box as well.
TAG_ONLY = (
    "boxed inside the answer",
    "several boxes",
    "empty",
    "unbalanced LaTeX",
    "pathological",
    "many answers to one gold",
    "boxes in a sentence",
)


@dataclass(frozen=True, slots=True)
class Case:
    """expected: a verdict, `not correct` for any reason, or `refused` for a right answer that is not understood."""

    family: str
    scaffold: str
    completion: str
    gold: str
    finish: str
    expected: str


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    got: Verdict

    @property
    def false_positive(self) -> bool:
        return self.got.correct and self.case.expected not in ("correct", REFUSED)

    @property
    def false_negative(self) -> bool:
        return not self.got.correct and self.case.expected == "correct"

    @property
    def other_verdict(self) -> bool:
        """Rightly not correct, but for another reason than expected."""
        return not self.got.correct and self.case.expected not in ("correct", NOT_CORRECT, REFUSED, self.got.verdict)


def read_cases(name: str) -> list[dict[str, Any]]:
    """Rows of one file of cases, texts written out."""
    lines = _FOLDER.joinpath(f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [{field: _text(value) for field, value in json.loads(line).items()} for line in lines if line]


def cases() -> list[Case]:
    """Every answer in `<answer>` and, where that makes sense, in a box; then whole completions."""
    names = sorted(path.name.removesuffix(".jsonl") for path in _FOLDER.iterdir())
    return [case for name in names if name != "peers" for row in read_cases(name) for case in _cases(row)]


def _cases(row: dict[str, str]) -> Iterator[Case]:
    family, gold, expected = row["family"], row["gold"], row["expected"]
    if "completion" in row:
        yield Case(family, row["scaffold"], row["completion"], gold, row["finish"], expected)
        return
    answer = row["answer"]
    yield Case(family, "panel", PANEL.answer_in_form(answer), gold, "stop", expected)
    if family not in TAG_ONLY and answer.count("{") == answer.count("}"):
        yield Case(family, "thinking", THINKING.answer_in_form(answer), gold, "stop", expected)


def _text(value: str | list[tuple[str, int]]) -> str:
    return value if isinstance(value, str) else "".join(text * times for text, times in value)


def run_selftest(graders: Graders) -> list[Outcome]:
    suite = cases()
    verdicts = graders.grade([GradeItem(c.scaffold, c.completion, c.gold, c.finish) for c in suite])
    return [Outcome(case, verdict) for case, verdict in zip(suite, verdicts, strict=True)]
