"""The matched study on a real model: draw its pools and write its page.

`python -m benchmarks.matched pool math_train.jsonl DIR` draws 1,600 problems of MATH's training half of levels 3 to 5 for
the study and 800 others of the same levels for its second lesson. They are drawn by hash, so that every subject has its
share: the file's first problems are all algebra. `python -m benchmarks.matched page` writes docs/results/matched-1.5b.md from the
files beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import click
import pyarrow.parquet as pq

from storage.sql import query

SEED = 20261126
LEVELS = ("3", "4", "5")
#: The rows of each pool, in the order drawn: the study's problems, then the second lesson's.
POOLS = {"math_l345.jsonl": slice(1600), "math_l345_lesson.jsonl": slice(1600, 2400)}
FILES = Path("docs/results/matched-1.5b")
#: Limits of the gate, as study.toml has them.
LIMITS = {"invalid_tags": 0.05, "no_answer": 0.05, "truncated": 0.05}
FORM = """
select arm, count(*) as rollouts, avg(correct::int) as accuracy, avg((not tag_valid)::int) as invalid_tags,
    avg((verdict = 'no_answer')::int) as no_answer, avg((finish = 'length')::int) as truncated,
    avg(num_tokens) as tokens
from screening group by arm order by arm
"""
BANDS = """
select arm, count(*) filter (n = 0) as all_zero, count(*) filter (n > 0 and n < 8) as variance,
    count(*) filter (n = 8) as all_one
from (select arm, problem_id, sum(correct::int) as n from screening group by all) group by arm order by arm
"""


@click.group()
def main() -> None:
    """Make the matched study's inputs and its page."""


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
def page() -> None:
    """Write the page of what is there so far: the gate."""
    screening = pq.read_table(FILES / "screening-1.parquet")
    form, bands = (query(sql, screening=screening).to_pylist() for sql in (FORM, BANDS))
    reasons = [
        f"{row[name]:.1%} of the rollouts of {row['arm']} {words} (at most {limit:.0%})"
        for name, limit, words in zip(
            LIMITS, LIMITS.values(), ("have no valid tags", "give no answer", "are cut off"), strict=True
        )
        for row in form
        if row[name] > limit
    ]
    verdict = f"does not hold: {'; '.join(reasons)}" if reasons else "holds"
    columns = ("arm", "rollouts", "accuracy", "no valid tags", "no answer", "cut off", "mean tokens")
    table = [columns, ["---"] * len(columns)] + [
        (r["arm"], f"{r['rollouts']:,}", *(f"{r[n]:.1%}" for n in ("accuracy", *LIMITS)), f"{r['tokens']:.0f}")
        for r in form
    ]
    counts = [("arm", "all_zero", "variance", "all_one"), ["---"] * 4]
    counts += [tuple(str(value) for value in row.values()) for row in bands]
    text = TEXT.format(verdict=verdict, form=_rows(table), bands=_rows(counts))
    Path(f"{FILES}.md").write_text(text)


def _rows(table: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _rank(uid: str) -> str:
    return hashlib.sha256(f"{SEED}:{uid}".encode()).hexdigest()


TEXT = """# The matched study: not decided yet

No arm was trained: the gate after the screening {verdict}.
So this page compares no gains. It shows what the screening found and what the next attempt must change.

Design, frozen before: [design](matched-1.5b/design.md). Made by `python -m benchmarks.matched page`.

## Screening: 1,600 problems of MATH, levels 3 to 5, 8 rollouts each

{form}

Problems by band:

{bands}

Both arms had the same two lessons. One H100 (80 GB) made the four lessons and both screenings in 18.5 minutes, of which the engine's
start took 2.

## What can and cannot be concluded

- After equal lessons the debate form is harder to keep on longer problems than the monologue. Invalid tags cost `panel` rollouts that could have
  been right, so a difference of gains would partly be one of form.
- Nothing is known of gains. The arms' accuracies at the start are of different policies and are not a result.
- The second lesson did not help `panel`'s form: rollouts without valid tags were 6.3 % after the first lesson (12,720 rollouts of the first
  attempt, on two H100, whose files are lost) and 9.0 % after the second.

## Next attempt

A lesson at the study's own difficulty and length (MATH levels 3 to 5 outside the pool, 2,048 tokens) with a stronger penalty
on form, equal for both arms, and the gate again: amendment 2 of the design.
"""

if __name__ == "__main__":
    main()
