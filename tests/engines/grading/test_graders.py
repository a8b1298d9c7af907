"""The grader as a service: limits, threads, event loops, order, and what it does not import."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.domain.grading.grading import Overrides, Verdict
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.grading.selftest import run_selftest

REPO = Path(__file__).resolve().parents[3]
SYMBOLIC = [GradeItem("no_panel", rf"<answer>\sqrt{{{4 * n}}}</answer>", rf"2\sqrt{{{n}}}") for n in range(2, 10)]
HEAVY = (r"9^{9^{9^9}}", r"10^{10^{10}}!", r"\frac{1}{" * 1000 + "2" + "}" * 1000, "7" * 100_000, "x?(" * 33_334)


@pytest.fixture(scope="module")
def graders() -> Iterator[Graders]:
    with Graders(workers=2) as pool:
        pool.grade(SYMBOLIC)
        yield pool


def _grade(graders: Graders, answer: str, gold: str) -> Verdict:
    return graders.grade([GradeItem("no_panel", f"<answer>{answer}</answer>", gold)])[0]


@pytest.mark.slow
def test_adversarial_suite(graders: Graders) -> None:
    outcomes = run_selftest(graders)
    # a pathological answer may be found wrong before its time is up
    bad = [
        o
        for o in outcomes
        if o.false_positive or o.false_negative or (o.other_verdict and o.case.family != "pathological")
    ]
    assert len(outcomes) > 2900
    assert [(o.case.family, o.case.completion[-60:], o.case.gold[:30], o.got) for o in bad] == []


@pytest.mark.parametrize("answer", HEAVY, ids=["tower", "factorial", "nested", "digits", "junk"])
def test_pathological_answers_cost_little_and_never_pass(answer: str) -> None:
    with Graders(workers=1) as pool:
        pool.grade(SYMBOLIC[:1])
        began = time.perf_counter()
        verdict = _grade(pool, answer, "7")
        assert not verdict.correct
        busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        assert time.perf_counter() - began < (60 if busy else 4)  # 2 s of its own; a starved item is tried again
        assert pool.grade(SYMBOLIC[1:2])[0].correct


def test_one_function_grades_for_other_projects() -> None:
    from varband import grade

    assert grade(r"\boxed{2\sqrt{2}}", r"\sqrt{8}").correct
    assert not grade("a fifth of $20$", "20").correct


def test_a_batch_survives_what_kills_its_neighbours(graders: Graders) -> None:
    items = [SYMBOLIC[0], GradeItem("no_panel", "<answer>8^{8^{8^8}}</answer>", "7"), SYMBOLIC[1]]
    assert [v.verdict for v in graders.grade(items)] == ["correct", "timeout", "correct"]


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


def test_memory_is_limited(graders: Graders) -> None:
    assert _grade(graders, r"\binom{10^{9}}{5 \cdot 10^{8}}", "7").verdict in ("timeout", "ungradable", "wrong")


def test_same_from_threads_and_event_loops(graders: Graders) -> None:
    expected = graders.grade(SYMBOLIC)
    found: list[list[Verdict]] = []
    with Graders(workers=2) as fresh:
        threads = [threading.Thread(target=lambda: found.append(fresh.grade(SYMBOLIC))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def inside() -> list[Verdict]:
            return fresh.grade([*SYMBOLIC, GradeItem("no_panel", r"<answer>\sqrt{75}</answer>", r"5\sqrt{3}")])

        found.append(asyncio.run(inside())[: len(SYMBOLIC)])
    assert all(verdicts == expected for verdicts in found)
    assert all(v.correct for v in expected)


def test_works_when_the_caller_has_no_main_module() -> None:
    code = (
        "from tasks.engines.grading.graders import *; g=Graders(workers=1);"
        r"print(g.grade([GradeItem('no_panel', r'<answer>\sqrt{8}</answer>', r'2\sqrt{2}')])[0].verdict); g.close()"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "correct"


def test_numbers_need_no_algebra_and_no_process() -> None:
    code = (
        "import sys; from tasks.engines.grading.graders import *; g=Graders();"
        "v=g.grade([GradeItem('no_panel', f'<answer>{i}</answer>', str(i%7)) for i in range(200)]);"
        "print(sum(x.correct for x in v), len(g._workers), 'sympy' in sys.modules, 'math_verify' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["7", "0", "False", "False"]


def test_a_killed_worker_is_replaced(graders: Graders) -> None:
    import os
    import signal

    with Graders(workers=1) as pool:
        pool.grade(SYMBOLIC[:1])
        os.kill(pool._workers[0]._process.pid, signal.SIGKILL)
        time.sleep(0.1)
        verdicts = pool.grade(SYMBOLIC[1:4])
    assert [v.correct for v in verdicts][1:] == [True, True]


def test_overrides_stand_above_the_grader_and_show_in_its_version() -> None:
    decided = Overrides({("six", "6m"): ("correct", "the text says that m = 1")})
    with Graders(workers=1, overrides=decided) as pool, Graders() as plain:
        assert pool.version.startswith(plain.version + "+")
        # the answer is what the region states: words that spell a number become the number
        assert _grade(pool, "8", "7").verdict == "wrong"
    other = Overrides({("8", "7"): ("correct", "misprint in the gold")})
    with Graders(overrides=other) as pool:
        assert _grade(pool, "8", "7").reason == "override: misprint in the gold"
