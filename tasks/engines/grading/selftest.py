"""The grader's adversarial suite, run on the real thing: false positives and negatives by family."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from tasks.domain.grading.grading import Verdict
from tasks.domain.grading.selftest.answers_by_gold import BY_GOLD
from tasks.domain.grading.selftest.cases import ANSWERS, VERDICTS
from tasks.domain.grading.selftest.completions import COMPLETIONS
from tasks.domain.grading.selftest.contest_forms import FORMS
from tasks.domain.grading.selftest.contest_formulas import FORMULAS
from tasks.domain.scaffolds import PANEL, THINKING
from tasks.engines.grading.graders import GradeItem, Graders

#: Families that are about the tag itself; every other family is judged in a box as well.
NOT_CORRECT = "not correct"
TAG_ONLY = ("boxed inside the answer", "several boxes", "empty", "unbalanced LaTeX", "pathological")


@dataclass(frozen=True, slots=True)
class Case:
    """expected: a verdict, or `not correct`, for whatever reason."""

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
        return self.got.correct and self.case.expected != "correct"

    @property
    def false_negative(self) -> bool:
        return not self.got.correct and self.case.expected == "correct"

    @property
    def other_verdict(self) -> bool:
        """Rightly not correct, but for another reason than expected."""
        return not self.got.correct and self.case.expected not in ("correct", NOT_CORRECT, self.got.verdict)


def cases() -> list[Case]:
    """Every answer in `<answer>` and, where that makes sense, in a box; then whole completions."""
    found = []
    for family, pairs in chain(ANSWERS.items(), FORMS.items(), FORMULAS.items()):
        for answer, gold, sign in pairs:
            expected = VERDICTS[sign]
            found.append(Case(family, "panel", PANEL.answer_in_form(answer), gold, "stop", expected))
            if family not in TAG_ONLY and answer.count("{") == answer.count("}"):
                found.append(Case(family, "thinking", THINKING.answer_in_form(answer), gold, "stop", expected))
    for gold, answers in BY_GOLD.items():
        for expected, some in zip(("correct", NOT_CORRECT), answers, strict=True):
            found += [
                Case("many answers to one gold", "panel", PANEL.answer_in_form(a), gold, "stop", expected) for a in some
            ]
    found += [Case("whole completions", *row[:4], VERDICTS[row[4]]) for row in COMPLETIONS]
    return found


def run_selftest(graders: Graders) -> list[Outcome]:
    suite = cases()
    verdicts = graders.grade([GradeItem(c.scaffold, c.completion, c.gold, c.finish) for c in suite])
    return [Outcome(case, verdict) for case, verdict in zip(suite, verdicts, strict=True)]
