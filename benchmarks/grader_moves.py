"""List the verdicts that a change of the grader moves: python -m benchmarks.grader_moves VERDICTS.json POOL.jsonl ...

The first call writes the verdicts of the labelled suites, crossed within families, and of the golds; later calls compare.
"""

import json
import re
import sys
from itertools import pairwise, product
from pathlib import Path

from tasks.engines.grading.graders import grade
from tasks.engines.grading.selftest import cases, read_cases

if __name__ == "__main__":
    file, *pools = map(Path, sys.argv[1:])
    golds = sorted({json.loads(line)["gold"] for pool in pools for line in pool.read_text().splitlines()})
    labelled = [(re.sub("</?answer>", "", c.item.key()[0] or ""), c.item.gold, c.family) for c in cases()]
    labelled += [(row["answer"], row["gold"], "") for row in read_cases("peers")]
    pairs = [(answer, gold) for answer, gold, _ in labelled] + [(gold, answer) for answer, gold, _ in labelled]
    pairs += [(a, b) for (a, _, f), (_, b, g) in product(labelled[::9], labelled[::9]) if f == g]
    pairs += [pair for g in golds for pair in ((g, g), (f"The answer is ${g}$.", g))] + [*pairwise(golds)]
    now = {f"{answer}\n{gold}": grade(answer, gold).verdict for answer, gold in pairs if len(answer + gold) < 1_000}
    before = json.loads(file.read_text()) if file.exists() else now
    for pair in now.keys() & before.keys():
        if now[pair] != before[pair]:
            print(before[pair], "->", now[pair], repr(pair))
    file.write_text(json.dumps(before))
