"""The matched study on a real model: draw its pools, run it on a GPU machine that is handed back, write its page.

`python -m benchmarks.matched pool math_train.jsonl DIR` draws 1,600 problems of MATH's training half of levels 3 to 5 for
the study and 800 others of the same levels for its second lesson. They are drawn by hash, so that every subject has its
share: the file's first problems are all algebra. `python -m benchmarks.matched lease …` runs the study for so many seconds and puts
what is new into numbered archives as it goes, so that nothing has to be done at the end. `python -m benchmarks.matched page` writes
docs/results/matched-1.5b.md from the files beside it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.errors import Parked
from storage.records.copies import copy_study
from storage.sql import query

SEED = 20261126
LEVELS = ("3", "4", "5")
#: The rows of each pool, in the order drawn: the study's problems, then the second lesson's.
POOLS = {"math_l345.jsonl": slice(1600), "math_l345_lesson.jsonl": slice(1600, 2400)}
FILES = Path("docs/results/matched-1.5b")
#: Limits of the gate, as study.toml has them.
LIMITS = {"invalid_tags": 0.05, "no_answer": 0.05, "truncated": 0.05}
#: Columns of attempt-3.tsv that are shares.
SHARES = ("accuracy", "invalid_tags", "truncated")
FORM = """
with problems as (
    select arm, count(*) as rollouts, sum(correct::int) as correct, sum((not tag_valid)::int) as invalid_tags,
        sum((verdict = 'no_answer')::int) as no_answer, sum((finish = 'length')::int) as truncated,
        sum(num_tokens) as tokens
    from screening group by arm, problem_id
)
select arm, sum(rollouts)::int as rollouts, sum(correct) / sum(rollouts) as accuracy,
    count_if(correct between 1 and rollouts - 1) as variance, sum(invalid_tags) / sum(rollouts) as invalid_tags,
    sum(no_answer) / sum(rollouts) as no_answer, sum(truncated) / sum(rollouts) as truncated,
    sum(tokens) / sum(rollouts) as tokens
from problems group by arm order by arm
"""
#: What the page needs of a screening's rollouts, whose completions stay where they were made.
COLUMNS = ("arm", "problem_id", "rollout", "verdict", "correct", "tag_valid", "finish", "num_tokens")


@click.group()
def main() -> None:
    """Make the matched study's inputs, rows and page."""


@main.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
def pool(source: Path, dest: Path) -> None:
    """Draw the pools from SOURCE (math_train.jsonl) into the folder DEST and print their SHA-256."""
    rows = [row for row in map(json.loads, source.read_text().splitlines()) if row["level"] in LEVELS]
    rows.sort(key=lambda row: _rank(row["uid"]))
    for name, part in POOLS.items():
        chosen = rows[part]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
        (dest / name).write_text(text)
        print(f"{name}: {len(chosen)} problems, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


@main.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--root", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--seconds", type=float, required=True, help="When the run is told to stop; the last archive follows.")
@click.option("--every", type=float, default=60.0, show_default=True, help="Seconds between archives.")
@click.argument("study", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def lease(out: Path, root: Path, seconds: float, every: float, study: Path, options: tuple[str, ...]) -> None:
    """Run STUDY with OPTIONS of `varband run` (after `--`), again where a fault ended it.

    OUT holds `NNN.tar`: what was new in a light copy of the root each time, without the ledger; at most 16 MB each, unless
    one file is larger. Unpacked in order into one folder they are a root. `done` is there at the end.
    """
    out.mkdir(parents=True, exist_ok=True)
    home, packed, end = out.parent / f"{out.name}.copy", {}, time.monotonic() + seconds
    command = [sys.executable, "-m", "varband", "run", str(study), "--root", str(root), *options]
    log = out / f"{study.stem}.log"
    for _ in range(3):
        with log.open("a") as file:
            run = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        while run.poll() is None and time.monotonic() < end:
            try:
                run.wait(min(every, max(0.0, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                _pack(root, home, out, packed)
        run.terminate()
        try:
            run.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # its arms and engines too: they hold what the copy waits for
        _pack(root, home, out, packed)
        if run.returncode in (0, Parked.exit_code) or time.monotonic() >= end:
            break
    (out / "done").touch()


def _pack(root: Path, home: Path, out: Path, packed: dict[Path, float], limit: int = 16_000_000) -> None:
    """Archive what is new or changed since the last time."""
    if not root.is_dir():
        return
    copy_study(root, home, weights=False)
    files = [
        path for path in sorted(home.rglob("*")) if path.is_file() and "ledger" not in path.relative_to(home).parts
    ]
    new = [path for path in files if packed.get(path) != path.stat().st_mtime]
    while new:
        number, size = len(list(out.glob("*.tar"))), 0
        writing = out / f"{number:03d}.new"
        with tarfile.open(writing, "w") as tar:
            while new and (not size or size + new[0].stat().st_size < limit):
                path = new.pop(0)
                tar.add(path, path.relative_to(home))
                size += path.stat().st_size + 1024
                packed[path] = path.stat().st_mtime
        writing.rename(out / f"{number:03d}.tar")


@main.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("dest", type=click.Path(dir_okay=False, path_type=Path))
def screening(root: Path, dest: Path) -> None:
    """Write the screening's rows of the root that a lease left behind into DEST, without completions."""
    files = sorted(root.glob("rollouts/*/data.parquet"))
    tables = [pq.read_table(file, columns=[*COLUMNS, "step"]) for file in files]
    rows = pa.concat_tables(tables).filter(pc.field("step") == 0).select(COLUMNS)
    pq.write_table(rows.sort_by([(name, "ascending") for name in COLUMNS[:3]]), dest, compression="zstd")


@main.command()
def page() -> None:
    """Write the page of what is there so far: three gates and the means of an attempt whose rows were lost."""
    with (FILES / "attempt-3.tsv").open() as file:
        means = list(csv.DictReader(file, delimiter="\t"))
    third = [
        (m["policy"], f"{int(m['rollouts']):,}", *(f"{float(m[n]):.1%}" for n in SHARES), f"{float(m['tokens']):.0f}")
        for m in means
    ]
    text = TEXT.format(
        second=_gate("screening-1.parquet"),
        fourth=_gate("screening-4.parquet"),
        third=_rows(("policy", "rollouts", "accuracy", "no valid tags", "cut off", "mean tokens"), third),
    )
    Path(f"{FILES}.md").write_text(text)


def _gate(file: str) -> str:
    """Return the table of a screening."""
    columns = ("arm", "rollouts", "accuracy", "variance band", "no valid tags", "no answer", "cut off", "mean tokens")
    rows = [
        (
            r["arm"],
            f"{r['rollouts']:,}",
            f"{r['accuracy']:.1%}",
            f"{r['variance']:,}",
            *(f"{r[n]:.1%}" for n in LIMITS),
            f"{r['tokens']:.0f}",
        )
        for r in query(FORM, screening=pq.read_table(FILES / file)).to_pylist()
    ]
    return _rows(columns, rows)


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))


def _rank(uid: str) -> str:
    return hashlib.sha256(f"{SEED}:{uid}".encode()).hexdigest()


TEXT = """# The matched study: not decided yet

Four attempts ran. Three ended at the gate before any training. The third passed it and trained two seeds of each arm, and its rows were
lost when the machine was handed back. So no gain is compared here.

Design, frozen before each attempt: [design](matched-1.5b/design.md). Made by `python -m benchmarks.matched page`. In each attempt 8 rollouts of
every problem are sampled after the lessons. The gate asks for at most 5 % without valid tags, without an answer and cut off, and for an accuracy between
20 % and 60 %, in both arms.

## Second attempt: the gate did not hold

1,600 problems of MATH, levels 3 to 5, after lessons on GSM8K and on MATH's levels 1 and 2. `panel` broke its form in 9 % of the rollouts.

{second}

## Third attempt: the gate held, the rows are lost

1,000 problems. The lessons had 40 steps each and were of the study's own level and length, and a broken form cost 1: the screening had 0.7 % (panel) and
0.6 % (think_tags) without valid tags, and 486 and 437 problems in the variance band. Two H200 made four lessons, both screenings, both starts and two seeds
of each arm in 21 minutes. What remains are means. A start's row has the screening, the held-out problems at step 0 and three training
steps in it; a seed's row is 500 held-out problems × 8 at step 20.

{third}

## Fourth attempt: the gate did not hold

The same 1,000 problems and lessons of 20 steps instead of 40, to save time for more seeds. Both arms kept their form, but `think_tags` solved less than the
20 % that the gate asks for. The lease ended in the third lesson.

{fourth}

## What can and cannot be concluded

- A lesson at the study's own level with a full penalty teaches the form to both arms, in 20 steps as in 40.
- 20 steps are not enough for accuracy: after them `think_tags` solves 19.6 %, after 40 it solved about 23 %.
- Nothing about the difference of gains: a start's mean is not of the held-out problems alone, and without rows there is no interval.
- The lessons left the two arms at different lengths, and not always in the same order (562 and 342 tokens a rollout in the third attempt, 563 and 711 in
  the fourth). The next page must show accuracy and length at the start beside every gain.

## Next attempt

Amendment 5 of the design: the lessons of the third attempt.
"""

if __name__ == "__main__":
    main()
