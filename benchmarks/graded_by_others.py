"""Outputs of real models that others graded, graded here: how often the two differ, and on what.

    python benchmarks/graded_by_others.py FOLDER [--show 20]

Reads every file under FOLDER in one of three public forms, and passes over the rest:

- JSON lines with `pred` (answers as extracted), `score` (whether each is right) and `answer`, the gold, as in the
  outputs of microsoft/rho (`rho-1/outputs.zip`, unpacked; its `minerva_math` is MATH-500, its golds of GSM8K stand
  behind `####`);
- JSON lines of openai/grade-school-math (`example_model_solutions.jsonl`): `ground_truth` and, for each model, a
  `solution` with `is_correct`; both end in `A: answer`;
- logs of inspect (`samples` with `target` and `scores` that hold `extracted_answer`), as in
  epoch-research/inspect-hendrycks-math-repro.

Both graders see the same (answer, gold). Prints one JSON line of counts, then the disagreements, class by class.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.grading.shapes import shape
from tasks.domain.scaffolds import NO_PANEL
from tasks.engines.grading.graders import GradeItem, Graders

#: A score of inspect that is not one of these ran another question (`expression_exact_match_sympy` there is 0 of 100).
INSPECT_SCORES = ("expression_equivalance", "expression_exact_match")


@dataclass(frozen=True, slots=True, order=True)
class Graded:
    """An answer that others graded. grader: whose verdict it is."""

    grader: str
    answer: str
    gold: str
    correct: bool


def read(folder: Path) -> list[Graded]:
    return [row for path in sorted(folder.rglob("*.json*")) for row in _of_file(path)]


def _of_file(path: Path) -> Iterator[Graded]:
    if path.suffix == ".jsonl":
        for line in path.read_text(encoding="utf-8").split("\n"):
            row = json.loads(line) if line.strip() else {}
            if "ground_truth" in row:
                gold = row["ground_truth"].rpartition("A: ")[2]
                for model in (value for value in row.values() if isinstance(value, dict)):
                    answer = model["solution"].rpartition("A: ")[2]
                    yield Graded("is_correct", answer, gold, bool(model["is_correct"]))
            if {"pred", "score", "answer"} <= set(row):
                gold = str(row["answer"]).rpartition("#### ")[2]
                for answer, correct in zip(row["pred"], row["score"], strict=True):
                    yield Graded("math_equal", str(answer), gold, bool(correct))
        return
    log: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for sample in log.get("samples", ()):
        for name in INSPECT_SCORES:
            score = sample["scores"].get(name)
            if score is not None:
                answer = (score.get("metadata") or {}).get("extracted_answer") or score.get("answer") or ""
                yield Graded(name, answer, sample["target"], score["value"] == "C")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", type=int, default=20, help="pairs of each class that are printed")
    told = parser.parse_args()
    outputs = read(told.folder)
    pairs = sorted(set(outputs))
    with Graders() as graders:
        items = [GradeItem("no_panel", NO_PANEL.answer_in_form(pair.answer), pair.gold) for pair in pairs]
        verdicts = graders.grade(items)
    found = []
    for pair, verdict in zip(pairs, verdicts, strict=True):
        if verdict.correct != pair.correct:
            here = f"{verdict.verdict} here, {'right' if pair.correct else 'wrong'} by {pair.grader}"
            found.append((f"{here}: {shape(pair.gold).kind}", pair, verdict))
    counts = {
        "grader": GRADER_VERSION,
        "outputs": len(outputs),
        "distinct": len(pairs),
        "right_by_both": sum(v.correct and p.correct for p, v in zip(pairs, verdicts, strict=True)),
        "disagreements": len(found),
        "only_here": sum(v.correct for _, _, v in found),
        "verdicts": dict(Counter(v.verdict for v in verdicts)),
    }
    print(json.dumps(counts))
    found.sort(key=lambda one: (one[0], one[1]))
    for name, some in groupby(found, key=lambda one: one[0]):
        listed = list(some)
        print(f"\n{name}: {len(listed)}")
        for _, pair, verdict in listed[: told.show]:
            print(f"  {pair.answer!r:.100} for {pair.gold!r:.80}: {verdict.reason}")


if __name__ == "__main__":
    main()
