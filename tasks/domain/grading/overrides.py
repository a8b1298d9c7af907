"""Overrides: verdicts on (answer, gold) pairs by people, above the grader's, each with its reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from storage.errors import UserError
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.grading.terms import Verdict, VerdictName, squeeze

#: (answer, gold, verdict, reason)
OverrideRows = tuple[tuple[str, str, VerdictName, str], ...]
FIELDS = ("answer", "gold", "verdict", "reason")


@dataclass(frozen=True, slots=True)
class Overrides:
    """verdicts: (answer, gold), both without meaningless spaces → (verdict, reason)."""

    verdicts: Mapping[tuple[str, str], tuple[VerdictName, str]] = field(default_factory=dict)

    def apply(self, verdict: Verdict, gold: str) -> Verdict:
        if not self.verdicts or verdict.answer is None:
            return verdict
        found = self.verdicts.get((squeeze(verdict.answer), squeeze(gold)))
        return verdict if found is None else replace(verdict, verdict=found[0], reason=f"override: {found[1]}")

    def version(self, grader: str) -> str:
        if not self.verdicts:
            return grader
        text = json.dumps(sorted([*key, *value] for key, value in self.verdicts.items()))
        return f"{grader}+{hashlib.sha256(text.encode()).hexdigest()[:6]}"

    def rows(self) -> OverrideRows:
        """In the plain form of a recipe."""
        return tuple((answer, gold, *found) for (answer, gold), found in sorted(self.verdicts.items()))

    @classmethod
    def of(cls, rows: OverrideRows) -> Overrides:
        return cls({(answer, gold): (verdict, reason) for answer, gold, verdict, reason in rows})


@dataclass(frozen=True, slots=True)
class ActiveGrader:
    """Whose verdicts stand: a version of the grader, with people's overrides above it."""

    installed: str = GRADER_VERSION
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def version(self) -> str:
        return self.overrides.version(self.installed)


def read_overrides(text: str, name: str) -> Overrides:
    """Overrides from JSON lines with answer, gold, verdict and reason.

    Errors: UserError naming file, line and field.

    >>> o = read_overrides('{"answer": "six", "gold": "6m", "verdict": "wrong", "reason": "m is missing"}', "f")
    >>> o.apply(Verdict("correct", "equal", "six", "6"), "6m").verdict
    'wrong'
    """
    verdicts: dict[tuple[str, str], tuple[VerdictName, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: is not JSON ({error.msg})") from None
        missing = [
            f for f in FIELDS if not isinstance(row, dict) or not isinstance(row.get(f), str) or not row[f].strip()
        ]
        if missing:
            raise UserError(f"{where}: field '{missing[0]}' must be text and not empty")
        if row["verdict"] not in get_args(VerdictName):
            raise UserError(
                f"{where}: field 'verdict' is {row['verdict']!r} (known: {', '.join(get_args(VerdictName))})"
            )
        key = squeeze(row["answer"]), squeeze(row["gold"])
        if key in verdicts:
            raise UserError(f"{where}: this answer and gold have a verdict above already")
        verdicts[key] = row["verdict"], row["reason"]
    return Overrides(verdicts)
