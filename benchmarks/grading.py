"""Grades per second: a plain loop over math-verify against the project's grader, on the same 5,000 rollouts.

Rollouts are like those of training: 200 problems, long reasoning, answers that repeat within a group, half of them
right, golds of the real pool where it is there. `python benchmarks/grading.py [--data DIR]` prints one JSON line.
`--distinct` grades pairs that do not repeat, on one core each: every gold in another notation, and the gold after it.
`--algebra` does so with formulas alone, and `0+` before each answer, so that text and arithmetic decide nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from itertools import pairwise
from pathlib import Path

from tasks.domain.arms import ARMS
from tasks.domain.grading.latex_normalisation import normalise
from tasks.domain.grading.quantities import number
from tasks.domain.grading.shapes import shape
from tasks.engines.grading.graders import GradeItem, Graders

GOLDS = [
    r"\frac{1}{2}",
    "204",
    r"2\sqrt{3}",
    "n(n+1)/2",
    "(1, 2)",
    "17",
    r"\frac{25}{2}",
    "1, 3, 5",
    "73",
    r"4 \pi^{2}-1",
]
PROBLEMS, GROUP = 200, 25


def rollouts(golds: list[str], seed: int = 0) -> list[GradeItem]:
    """PROBLEMS × GROUP completions of about 6,000 characters. Wrong answers come from few alternatives, as models' do."""
    draw = random.Random(seed)
    step = "Then we compare both sides, note that $x^2 + 3x = {}$ and keep the smaller case in mind. "
    items = []
    for i in range(PROBLEMS):
        gold = golds[i % len(golds)]
        wrong = [f"{gold}+{k}" if any(c.isalpha() for c in gold) else str(draw.randint(0, 999)) for k in range(1, 5)]
        variants = [gold, f"${gold}$", f"x = {gold}", rf"\boxed{{{gold}}}"]
        for _ in range(GROUP):
            answer = draw.choice(variants) if draw.random() < 0.5 else draw.choice(wrong)
            trace = "".join(step.format(draw.randint(0, 99)) for _ in range(70))
            arm = draw.choice(("panel", "thinking"))
            items.append(GradeItem(arm, ARMS[arm].scaffold.answer_in_form(answer, trace), gold))
    draw.shuffle(items)
    return items


def plain_loop(items: list[GradeItem]) -> float:
    """Seconds for what everybody writes first: parse and verify, one after the other, on the answer region."""
    from math_verify import parse, verify

    from tasks.domain.scaffolds import SCAFFOLDS

    verify(parse("$1$"), parse("$1$"))
    began = time.perf_counter()
    for item in items:
        region = SCAFFOLDS[str(item.scaffold)].parse(item.completion).region or ""
        verify(parse(f"${item.gold}$"), parse(region if "boxed" in region or "$" in region else f"${region}$"))
    return time.perf_counter() - began


def ours(items: list[GradeItem]) -> float:
    """Seconds. Every call is given a training step's 128 rollouts."""
    graders, began = Graders(), time.perf_counter()
    for start in range(0, len(items), 128):
        graders.grade(items[start : start + 128])
    return time.perf_counter() - began


def distinct_pairs(golds: list[str]) -> list[tuple[str, str]]:
    """(answer, gold): each gold as a model would write it, and the gold before it."""
    different = list(dict.fromkeys(golds))
    equal = [(rf"$\displaystyle {gold.replace('frac', 'dfrac')}$", gold) for gold in different]
    return equal + list(pairwise(different))


def algebra_pairs(golds: list[str]) -> list[tuple[str, str]]:
    """The pairs of formulas that are no numbers, with `0+` before the answer."""
    formulas = [gold for gold in golds if shape(gold).kind == "scalar" and number(normalise(gold)) is None]
    return [(f"$0+{answer.strip('$')}$", gold) for answer, gold in distinct_pairs(formulas)]


def distinct(pairs: list[tuple[str, str]]) -> dict[str, float]:
    """On one core each, this grader and parse and verify: pairs a second, and milliseconds of processor time a pair,
    which depend less on who else computes."""
    from math_verify import parse, verify

    items = [GradeItem("no_panel", f"<answer>{answer}</answer>", gold) for answer, gold in pairs]
    began, spent = time.perf_counter(), time.process_time()
    verdicts = Graders().grade(items)
    mine, my_cpu = time.perf_counter() - began, time.process_time() - spent
    verify(parse("$1$"), parse("$1$"))
    began, spent = time.perf_counter(), time.process_time()
    said = [
        verify(parse(f"${gold}$"), parse(answer if answer.startswith("$") else f"${answer}$")) for answer, gold in pairs
    ]
    theirs, their_cpu = time.perf_counter() - began, time.process_time() - spent
    differ = [(*pair, v.verdict, s) for pair, v, s in zip(pairs, verdicts, said, strict=True) if v.correct != s]
    print(json.dumps({"differ": differ}))
    rates = {"ours_per_s": round(len(pairs) / mine), "loop_per_s": round(len(pairs) / theirs)}
    costs = {
        "ours_cpu_ms": round(1000 * my_cpu / len(pairs), 1),
        "loop_cpu_ms": round(1000 * their_cpu / len(pairs), 1),
    }
    times = {"times": round(theirs / mine, 1), "cpu_times": round(their_cpu / my_cpu, 1)}
    return {"pairs": len(pairs), **rates, **costs, **times, "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with olympiad_pool.jsonl")
    parser.add_argument("--distinct", action="store_true", help="pairs that do not repeat, on one core")
    parser.add_argument("--algebra", action="store_true", help="the same, for formulas that only algebra can compare")
    told = parser.parse_args()
    data, golds = told.data, GOLDS
    if data is not None:
        lines = (data / "olympiad_pool.jsonl").read_text().split("\n")
        golds = [json.loads(line)["gold"] for line in lines if line]
    if told.distinct:
        return print(json.dumps(distinct(distinct_pairs(golds))))
    if told.algebra:
        return print(json.dumps(distinct(algebra_pairs(golds))))
    golds = random.Random(1).sample(golds, PROBLEMS) if data is not None else golds
    items = rollouts(golds)
    mine, loop = ours(items), plain_loop(items)
    told = {
        "rollouts": len(items),
        "loop_per_s": round(len(items) / loop),
        "ours_per_s": round(len(items) / mine),
        "times": round(loop / mine, 1),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
