"""The grader as a service: hostile input, threads, overrides."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.grade import grade
from tasks.domain.grading.grading import GRADER_VERSION, Verdict
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.grading.selftest import run_selftest

SYMBOLIC = [GradeItem("no_panel", rf"<answer>\sqrt{{{4 * n}}}</answer>", rf"2\sqrt{{{n}}}") for n in range(2, 10)]
HEAVY = (
    r"9^{9^{9^9}}",
    r"10^{10^{10}}!",
    r"\frac{1}{" * 1000 + "2" + "}" * 1000,
    "7" * 100_000,
    "x?(" * 33_334,
    r"\sum_{k=1}^{2000}\sum_{j=1}^{2000} jk",
    r"\sin(2^{20000})+" * 60 + "1",
)


def _grade(graders: Graders, answer: str, gold: str) -> Verdict:
    return graders.grade([GradeItem("no_panel", f"<answer>{answer}</answer>", gold)])[0]


@pytest.mark.slow
def test_adversarial_suite(graders: Graders) -> None:
    outcomes = run_selftest(graders)
    # a pathological answer may be found wrong before its time is up
    bad = [o for o in outcomes if o.fault and not (o.fault == "other reason" and o.case.family == "pathological")]
    assert len(outcomes) > 2900
    assert [(o.case.family, o.case.item.completion[-60:], o.case.item.gold[:30], o.got) for o in bad] == []


@pytest.mark.parametrize("answer", HEAVY, ids=["tower", "factorial", "nested", "digits", "junk", "sums", "sines"])
def test_pathological_answers_cost_little_and_never_pass(graders: Graders, answer: str) -> None:
    began = time.process_time()
    assert not _grade(graders, answer, "7").correct
    assert time.process_time() - began < 8


def test_one_function_grades_for_other_projects() -> None:
    from varband import grade

    assert grade(r"\boxed{2\sqrt{2}}", r"\sqrt{8}").correct
    assert not grade("a fifth of $20$", "20").correct


HOSTILE = (
    r"\left(" * 10_000 + "7",
    r"\frac" * 3_000,
    "7" * (1 << 20),
    "x+" * (1 << 19) + "x",
    "lorem ipsum " * 90_000,
    "\\frac{\ud800}{2}",
    "\x00" * 1_000,
    r"\{" * 300 + "8" + r"\}" * 300,
    "2^" * 300 + "2",
    "8" + "!" * 1_000,
    r"\boxed{" * 300,
    "8" + "\u0301" * 1_400,
    "1," * 700,
    r"\begin{pmatrix}" * 90,
    "(" * 700 + "8" + ")" * 700,
    "x'" * 700,
    r"x+\0",
)


def test_hostile_texts_cost_the_caller_nothing(graders: Graders) -> None:
    """Long, deep and broken texts never pass and never reach a computer algebra system that could choke on them."""
    began = time.process_time()
    verdicts = graders.grade([GradeItem("no_panel", f"<answer>{text}</answer>", "7") for text in HOSTILE])
    assert not any(v.correct for v in verdicts)
    assert time.process_time() - began < 2.0
    golds = graders.grade([GradeItem("no_panel", "<answer>7</answer>", "7" * n) for n in (5_000, 1 << 20)])
    assert [v.verdict for v in golds] == ["ungradable", "ungradable"]
    assert graders.grade(SYMBOLIC[:1])[0].correct


def test_same_from_threads(graders: Graders) -> None:
    expected = graders.grade(SYMBOLIC)
    found: list[list[Verdict]] = []
    with Graders() as fresh:
        threads = [threading.Thread(target=lambda: found.append(fresh.grade(SYMBOLIC))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(verdicts == expected for verdicts in found)
    assert all(v.correct for v in expected)


def test_overrides_stand_above_the_grader_and_show_in_its_version(tmp_path: Path) -> None:
    rows, decided, none = (tmp_path / name for name in ("rows.jsonl", "decided.jsonl", "none.jsonl"))
    answers = ("<answer>8</answer>", "<answer>9</answer>")
    rows.write_text("\n".join(json.dumps({"arm": "no_panel", "completion": a, "gold": "7"}) for a in answers))
    decided.write_text('{"answer": "8", "gold": "7", "verdict": "correct", "reason": "misprint in the gold"}')
    none.write_text("")

    def graded(overrides: Path) -> list[dict[str, str]]:
        done = CliRunner().invoke(grade, ["file", str(rows), "--overrides", str(overrides)])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    (plain, other), (above, same) = graded(none), graded(decided)
    assert [row["verdict"] for row in (plain, other, above, same)] == ["wrong", "wrong", "correct", "wrong"]
    assert above["reason"] == "override: misprint in the gold" and same["reason"] == other["reason"]
    assert plain["grader_version"] == GRADER_VERSION
    assert above["grader_version"].startswith(GRADER_VERSION + "+")
