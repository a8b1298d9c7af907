r"""Count the labelled cases that need each rule of the grader, and print a table of them.

Each rule is left out once. `peers` (cases/peers.jsonl) and `cases` (the adversarial suite, most answers in a tag and in
a box) count right answers that are refused without the rule; `wrong` counts wrong answers that are accepted without it.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from tasks.domain.grading import formulas, reading, texts
from tasks.domain.scaffolds import NO_PANEL
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.grading.selftest import REFUSED, cases, read_cases

#: What stands in place of a rule.
INSTEAD: dict[str, Any] = {
    "no match": re.compile(r"(?!)"),
    "None": lambda *_: None,
    "False": lambda *_: False,
    "True": lambda *_: True,
    "zero": lambda *_: 0,
    "empty": lambda *_: "",
    "argument": lambda value, *_: value,
    "second argument": lambda _, value: value,
    "no unit": lambda text: (text, None),
    "nothing": (),
    **{f"without {n}": tuple(s for i, s in enumerate(reading._SENTENCES) if i != n) for n in range(3)},
}
#: Rule, example, names in tasks.domain.grading, what stands in their place.
RULES = r"""
sentence: lead-ins, what is asked for and `is`, the answer, its unit | `Thus 7 apples`, `The sum is $7$.` | reading._SENTENCES | without 0
sentence: a name, `is`, the answer | `x is 8` | reading._SENTENCES | without 1
sentence: a count | `There are seven integers.` | reading._SENTENCES | without 2
units and counted nouns | `6\text{ m}` for 6, `18 red apples` | formulas.split_unit comparison.split_unit | no unit
numbers in words | `twenty one` | reading.in_digits | argument
answers in words | `monday` | comparison.worded grading.worded | empty
yes and no | `True` for `Yes` | grading.yes_or_no | empty
nothing of the kind | `no such x exists` | grading.denies_existence | False
letters of options | `(C)` for `\text{(C)}` | comparison._OPTION | no match
tags, headings and bold are no answer | `7 \tag{1}`, `# 7` | reading._DECORATION | nothing
superscripts, subscripts, fractions and roots in Unicode | `x²`, `√(2+π)` | texts._WRITTEN_OUT | nothing
thousands with commas or spaces | `1 234` | formulas._THOUSANDS | no match
a decimal for an exact value | `0.333333` for 1/3 | comparison.decimal_tolerance | zero
bases | `101` for `101_2` | comparison.same_in_base | None
`\pm` is two values | `\pm 3` | shapes._plus_minus | None
vectors and matrices, entry by entry | `\begin{pmatrix}1&2\end{pmatrix}` for `(1,2)` | shapes._matrix | None
sets of reals by what they hold | `(0,2)\cup(1,3)` for `(0,3)` | comparison.same_set | None
commands, signs and functions in other spellings | `\left(\dfrac12\right)`, `2>=1` | texts.RENAMED | nothing
quotes, emphasis and commands around a whole text | `"7"`, `\text{7}` | texts._WHOLE | nothing
sets in other notations | `\mathbb R`, `all real numbers` | shapes._NOTATIONS | nothing
only a name gives a value | `2x=5` is not 5 | comparison.names_value | True
a rounding must be true | `7 \approx 8` is not 7 | comparison._rounds | True
what stands beside a box | `-\boxed{7}` is not 7 | texts._BEFORE_BOX texts._AFTER_BOX | no match
steps | `3y=15, y=5` for 5 | comparison.Comparison._conclusion | None
conditions behind a formula | `k\pi, k\in\mathbb Z` | shapes._CONDITION | no match
another letter of periods or of a function | `n\pi` for `k\pi` | grading.with_letters_of | argument
labels of a gold | `1` for `\|AB\|=1` | comparison.is_label | False
named parts in the gold's order | `q=5, p=2` for `(p,q)=(2,5)` | comparison.in_order_of | second argument
`and` is not `or` | `y<0 \land y>4` | comparison._joined_differently | False
"""


def suites() -> dict[GradeItem, tuple[str, bool]]:
    """Answers, with their suite and whether they are right. Those that people or the grader may refuse are left out."""
    found = {}
    for row in read_cases("peers"):
        if "arguable" not in row:
            item = GradeItem("no_panel", NO_PANEL.answer_in_form(row["answer"]), row["gold"])
            found[item] = "peers", row["expected"] == "correct"
    for c in cases():
        if c.expected != REFUSED:
            found[c.item] = "cases", c.expected == "correct"
    return found


def table() -> str:
    labelled = suites()
    usual = Graders().grade([*labelled])
    lines = [
        f"{len(labelled):,} labelled pairs.",
        "",
        "| rule | example | peers | cases | wrong |",
        "|---|---|---|---|---|",
    ]
    for rule, example, names, instead in (line.split(" | ") for line in RULES.strip().splitlines()):
        with ExitStack() as stack:
            for name in names.split():
                stack.enter_context(patch(f"tasks.domain.grading.{name}", INSTEAD[instead]))
            texts.normalise.cache_clear()
            reading.read.cache_clear()
            formulas.parse.cache_clear()
            now = Graders().grade([*labelled])
        moved = Counter(
            suite if right else "wrong"
            for (suite, right), before, after in zip(labelled.values(), usual, now, strict=True)
            if before.correct == right != after.correct
        )
        counts = " | ".join(str(moved[column] or "") for column in ("peers", "cases", "wrong"))
        lines.append(f"| {rule} | {example} | {counts} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
