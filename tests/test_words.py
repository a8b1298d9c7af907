"""Words and letters of the project's own language are explained where a reader looks for them."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ARRAY = re.compile(r"\b[a-z][a-z0-9_]*_([A-Z]{1,4})\b")
#: Names that were riddles once, and the field's term that stands in their place.
REFUSED = {
    "commitment": "answer_extraction",
    "opinion": "cross_check",
    "evaluator": "cross_check",
    "dialects": "latex_normalisation",
    "leaves": "terms",
    "settled": "overrides",
    "settle": "put_overrides",
    "in_force": "active_grader",
    "Want": "RolloutRequest",
    "Tally": "SamplingStats",
    "tallies": "stats",
    "Draw": "SamplingPlan",
    "wave": "batch",
    "spreads": "diversity_measures",
    "looks": "query_cache",
    "goes": "attempts",
    "Errand": "ArmJob",
    "Crew": "WorkerPool",
    "hear": "listeners",
    "hard": "solved_by",
    "hard_problems": "solved_by",
    "HardProblems": "SolvedBy",
    "find_hard_problems": "compare_solved",
}
ROOMS = ("benchmarks", "cli", "dashboards", "flows", "storage", "tasks", "tests")
#: Names of the PEFT format.
FOREIGN = {"lora_A", "lora_B"}


def test_every_axis_letter_is_explained() -> None:
    table = (REPO / "docs" / "architecture.md").read_text().split("## Axes")[1]
    explained = {
        letter for row in re.findall(r"^\| ([A-Z](?:, [A-Z])*) \|", table, re.MULTILINE) for letter in row.split(", ")
    }
    used: dict[str, str] = {}
    for path in sorted((REPO / "tasks").rglob("*.py")):
        for found in ARRAY.finditer(path.read_text()):
            if found[0] not in FOREIGN:
                used |= dict.fromkeys(found[1], f"{path.relative_to(REPO)}: {found[0]}")
    assert len(used) > 10
    assert not {letter: where for letter, where in used.items() if letter not in explained}


def test_names_are_terms_of_the_field() -> None:
    found = []
    for path in (p for room in ROOMS for p in sorted((REPO / room).rglob("*.py"))):
        with path.open("rb") as handle:
            names = {t.string.strip("_") for t in tokenize.tokenize(handle.readline) if t.type == tokenize.NAME}
        found += [
            f"{path.relative_to(REPO)}: {name} ({REFUSED[name]})"
            for name in sorted({*names, path.stem} & REFUSED.keys())
        ]
    found += [str(p) for p in (REPO / "storage").rglob("*.sql") if REFUSED.keys() & set(re.split(r"\W+|_", p.stem))]
    assert not found
