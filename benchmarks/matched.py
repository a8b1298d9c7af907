"""The matched study on a real model: draw its pool. `python -m benchmarks.matched pool math_train.jsonl DEST.jsonl`.

The pool is 1,600 problems of MATH's training half, levels 3 to 5, drawn by hash, so that every subject has its share: the
file's first problems are all algebra.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import click

SEED, SIZE, LEVELS = 20261126, 1600, ("3", "4", "5")


@click.group()
def main() -> None:
    """Make the matched study's inputs."""


@main.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dest", type=click.Path(path_type=Path))
def pool(source: Path, dest: Path) -> None:
    """Draw the problems of SOURCE (math_train.jsonl) into DEST and print the file's SHA-256."""
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    chosen = sorted((row for row in rows if row["level"] in LEVELS), key=lambda row: _rank(row["uid"]))[:SIZE]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
    dest.write_text(text)
    print(f"{len(chosen)} problems, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


def _rank(uid: str) -> str:
    return hashlib.sha256(f"{SEED}:{uid}".encode()).hexdigest()


if __name__ == "__main__":
    main()
