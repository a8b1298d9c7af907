"""Draw the problems of the matched study (docs/results/matched-1.5b.md).

`python -m benchmarks.matched math_train.jsonl DIR` draws 1,600 problems of MATH's training half of levels 3 to 5 for the study
and 800 others of the same levels for its second lesson. They are drawn by hash, so that every subject has its share: the
file's first problems are all algebra.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import click

SEED = 20261126
LEVELS = ("3", "4", "5")
#: The rows of each pool, in the order drawn: the study's problems, then the second lesson's.
POOLS = {"math_l345.jsonl": slice(1600), "math_l345_lesson.jsonl": slice(1600, 2400)}


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
def main(source: Path, dest: Path) -> None:
    """Draw the pools from SOURCE (math_train.jsonl) into the folder DEST and print their SHA-256."""
    rows = [row for row in map(json.loads, source.read_text().splitlines()) if row["level"] in LEVELS]
    rows.sort(key=lambda row: _rank(row["uid"]))
    for name, part in POOLS.items():
        chosen = rows[part]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
        (dest / name).write_text(text)
        print(f"{name}: {len(chosen)} problems, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


def _rank(uid: str) -> str:
    return hashlib.sha256(f"{SEED}:{uid}".encode()).hexdigest()


if __name__ == "__main__":
    main()
