"""The matched study on a real model: draw its pools, and write its page.

`python -m benchmarks.matched pool math_train.jsonl DIR` draws 1,600 problems of MATH's training half of levels 3 to 5 for
the study and 800 others of the same levels for its second lesson. They are drawn by hash, so that every subject has its
share: the file's first problems are all algebra. `python -m benchmarks.matched page ROOT docs/results/matched-1.5b.md` writes
the page of the newest report, its chart and its rollouts' rows.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.sql import query
from tasks.domain.statistics.means import Seeded, by_seed, contrast, on_common_problems

SEED = 20261126
LEVELS = ("3", "4", "5")
#: The rows of each pool, in the order drawn: the study's problems, then the second lesson's.
POOLS = {"math_l345.jsonl": slice(1600), "math_l345_lesson.jsonl": slice(1600, 2400)}

#: Columns of a rollout that the page keeps; completions stay where they were made.
KEPT = (
    "arm",
    "adapter",
    "step",
    "seed",
    "problem_id",
    "rollout",
    "verdict",
    "correct",
    "tag_valid",
    "finish",
    "num_tokens",
)
COST = """
select format('{:,} rollouts of {:,} tokens, {:.2f} hours of {}, {:.2f} US$ at the prices of the root, {}', sum(rollouts)::bigint,
    sum(tokens)::bigint, sum(gpu_hours), string_agg(distinct device, ' and ') filter (device <> 'cpu'), sum(usd), min(time)::date::varchar) as paid
from charges
"""
SPREAD = """
select problem_id, adapter, dense_rank() over (order by cluster) as cluster, diversity
from (select problem_id, if(arm = 'panel', 101, 1) + seed as adapter, diversity from d
    where arm = $arm and step = $step and "window" = 'whole' and n > 1)
join (select problem_id, min(cluster) as cluster from p group by all) using (problem_id) order by all
"""


@click.group()
def main() -> None:
    """Draw the matched study's problems and write its page."""


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
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("dest", type=click.Path(dir_okay=False, path_type=Path))
def page(root: Path, dest: Path) -> None:
    """Write the page DEST of the newest report in ROOT, and into the folder beside it the chart and the rollouts' rows. The
    page ends with that folder's attempts.md."""
    beside, varband = dest.with_suffix(""), [sys.executable, "-m", "varband"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*varband, "report", "--root", root, "-o", folder], check=True, stdout=subprocess.DEVNULL)
        [report] = Path(folder).glob("*.md")
        text = report.read_text()
    subprocess.run(
        [*varband, "export", "figure", "answer_gain", "--root", root, "--format", "svg", "-o", beside], check=True
    )
    title, _, rest = text.partition("\n")
    about, _, answer = rest.partition("## The answer\n\n")
    answer = answer.replace("\n\nThis run does not compare two arms' diversity.", "")  # `_diversity` does
    answer = answer.replace("\n\nNot measured: diversity before, diversity after.", "")
    answer, _, tables = answer.partition("\n## Bands\n")
    verdict, holds, words = answer.split("\n\n", 2)
    audit = "## Audit\n" + tables.partition("\n## Audit\n")[2].partition("\n## ")[0].rstrip()
    chart = f"![Gain of each arm and seed]({beside.name}/answer_gain.svg)"
    paid = query(COST, charges=_charges(root))["paid"][0].as_py()
    first = (title, verdict, holds, chart, about.strip(), words.strip(), _diversity(root), audit, f"## Cost\n\n{paid}")
    parts = (*first, (beside / "attempts.md").read_text())
    dest.write_text("\n\n".join(parts))
    rows = "select distinct on (sampled, arm, adapter, step, seed, problem_id, rollout) * from rows order by all"
    tables = pa.concat_tables(_rows(file.parent) for file in sorted(root.glob("rollouts/*/data.parquet")))
    pq.write_table(query(rows, rows=tables), beside / "rollouts.parquet", compression="zstd")


def _diversity(root: Path) -> str:
    """The section on the distance of a problem's traces, from the tables of each policy: the embeddings stayed on the
    machine that made them, so that the report has no such section."""
    d, p = (
        pa.concat_tables(map(pq.read_table, sorted(root.glob(f"{kind}/*/data.parquet"))))
        for kind in ("diversity", "pool")
    )
    ends = list[Seeded]()
    for arm, step in product(("panel", "think_tags"), (20, 0)):
        rows = query(SPREAD, {"arm": arm, "step": step}, d=d, p=p)
        values = np.column_stack([rows["diversity"], rows["cluster"]])
        ends.append(by_seed(rows["problem_id"].to_numpy(), rows["adapter"].to_numpy(), values))
    ends = on_common_problems(ends)
    text = f"## Diversity\n\nMean cosine distance of a problem's traces, {len(ends[0].problem_P)} problems. The encoder reads the "
    text += (
        "first 384 tokens.\n\n| | seeds | before | after | change | 95 % interval |\n|---|---:|---:|---:|---:|---|\n"
    )
    for name, four, signs in (
        ("panel", ends[:2], (1, -1)),
        ("think_tags", ends[2:], (1, -1)),
        ("panel − think_tags", ends, (1, -1, -1, 1)),
    ):
        found = contrast(signs, four, shares=False, starts=range(1, len(four), 2))
        after, before = (f"{one.values_SPV[:, :, 0].mean():.3f}" for one in four[:2]) if len(four) == 2 else ("", "")
        low, high = (end_V[0] for end_V in found.interval())
        text += f"| {name} | {found.seeds} | {before} | {after} | {found.estimate_V[0]:+.3f} | {low:+.3f} to {high:+.3f} |\n"
    return text.replace("_", "\\_")


def _rows(artifact: Path) -> pa.Table:
    """A sampling's rollouts without their completions. sampled: at the screening, or of the held-out problems."""
    rows = pq.read_table(artifact / "data.parquet", columns=list(KEPT))
    split = json.loads((artifact / "manifest.json").read_text())["recipe"]["arguments"]["split"]
    return rows.add_column(0, "sampled", pa.array([split or "screening"] * rows.num_rows))


def _charges(root: Path) -> pa.Table:
    return pa.Table.from_pylist(
        [json.loads(x) for f in root.glob("spending/*/*.jsonl") for x in f.read_text().splitlines()]
    )


def _rank(uid: str) -> str:
    return hashlib.sha256(f"{SEED}:{uid}".encode()).hexdigest()


if __name__ == "__main__":
    main()
