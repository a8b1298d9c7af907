"""Grade the golds of a pool with the project's grader and with plain math-verify, and print both speeds as JSON.

    python -m benchmarks.grading POOL.jsonl [--algebra]

Each gold is graded as a model would write it, and as an answer to the next gold. `--algebra` takes formulas alone and
puts `0+` before each answer, so that neither text nor arithmetic decides.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

from math_verify import parse, verify

from tasks.domain.grading.formulas import number
from tasks.domain.grading.shapes import shape
from tasks.domain.grading.texts import normalise
from tasks.engines.grading.graders import grade


def math_verify(answer: str, gold: str) -> bool:
    return verify(parse(f"${gold}$"), parse(answer if answer.startswith("$") else f"${answer}$"))


def main(path: str, algebra: bool) -> None:
    golds = [*dict.fromkeys(json.loads(line)["gold"] for line in Path(path).read_text().splitlines())]
    if algebra:
        golds = [gold for gold in golds if shape(gold).kind == "scalar" and number(normalise(gold)) is None]
    pairs = [(rf"$\displaystyle {gold.replace('frac', 'dfrac')}$", gold) for gold in golds] + [*pairwise(golds)]
    if algebra:
        pairs = [(f"$0+{answer.strip('$')}$", gold) for answer, gold in pairs]
    cpu_ms, verdicts = {}, {}
    for name, judge in {"varband": lambda *pair: grade(*pair).correct, "math_verify": math_verify}.items():
        judge("1", "1")
        began = time.process_time()
        verdicts[name] = [judge(*pair) for pair in pairs]
        cpu_ms[name] = round(1000 * (time.process_time() - began) / len(pairs), 2)
    differ = [pair for pair, *both in zip(pairs, *verdicts.values(), strict=True) if len({*both}) > 1]
    times = round(cpu_ms["math_verify"] / cpu_ms["varband"], 1)
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"pairs": len(pairs), "cpu_ms": cpu_ms, "times": times, "load": load, "differ": differ}))


if __name__ == "__main__":
    main(sys.argv[1], "--algebra" in sys.argv)
