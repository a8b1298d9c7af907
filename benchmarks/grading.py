"""Grade pairs with the project's grader and with plain math-verify, on one core each, and print their speed as JSON.

    python -m benchmarks.grading [--data DIR] [--algebra]

The pairs are every gold in another notation, and every gold as an answer to the next one. `--algebra` takes formulas
alone and puts `0+` before each answer, so that neither text nor arithmetic decides.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from pathlib import Path

from math_verify import parse, verify

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


def distinct_pairs(golds: list[str]) -> list[tuple[str, str]]:
    """(answer, gold): each gold as a model would write it, and the gold before it."""
    different = list(dict.fromkeys(golds))
    equal = [(rf"$\displaystyle {gold.replace('frac', 'dfrac')}$", gold) for gold in different]
    return equal + list(pairwise(different))


def algebra_pairs(golds: list[str]) -> list[tuple[str, str]]:
    """The pairs of formulas that are no numbers, with `0+` before the answer."""
    formulas = [gold for gold in golds if shape(gold).kind == "scalar" and number(normalise(gold)) is None]
    return [(f"$0+{answer.strip('$')}$", gold) for answer, gold in distinct_pairs(formulas)]


def compared(pairs: list[tuple[str, str]]) -> dict[str, float]:
    """Pairs a second, and milliseconds of processor time a pair, which depend less on who else computes."""
    items = [GradeItem("no_panel", f"<answer>{answer}</answer>", gold) for answer, gold in pairs]
    began, spent = time.perf_counter(), time.process_time()
    verdicts = Graders().grade(items)
    mine, my_cpu = time.perf_counter() - began, time.process_time() - spent
    verify(parse("$1$"), parse("$1$"))
    began, spent = time.perf_counter(), time.process_time()
    loop = [
        verify(parse(f"${gold}$"), parse(answer if answer.startswith("$") else f"${answer}$")) for answer, gold in pairs
    ]
    theirs, their_cpu = time.perf_counter() - began, time.process_time() - spent
    differ = [(*pair, v.verdict, s) for pair, v, s in zip(pairs, verdicts, loop, strict=True) if v.correct != s]
    print(json.dumps({"differ": differ}))
    rates = {"ours_per_s": round(len(pairs) / mine), "loop_per_s": round(len(pairs) / theirs)}
    costs = {
        "ours_cpu_ms": round(1000 * my_cpu / len(pairs), 1),
        "loop_cpu_ms": round(1000 * their_cpu / len(pairs), 1),
    }
    times = {"times": round(theirs / mine, 1), "cpu_times": round(their_cpu / my_cpu, 1)}
    return {"pairs": len(pairs), **rates, **costs, **times, "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, help="folder with olympiad_pool.jsonl")
    parser.add_argument("--algebra", action="store_true", help="formulas that only algebra can compare")
    args = parser.parse_args()
    golds = GOLDS
    if args.data is not None:
        lines = (args.data / "olympiad_pool.jsonl").read_text().split("\n")
        golds = [json.loads(line)["gold"] for line in lines if line]
    print(json.dumps(compared(algebra_pairs(golds) if args.algebra else distinct_pairs(golds))))


if __name__ == "__main__":
    main()
