"""The published study's files as tables of this project's kinds. Nothing is filled in: what a file lacks is null.

Names are translated once, here: `uid` is a problem, `variance_band` is `variance`, a `batch` is the number of
updates done before it, and the length columns of the diversity files, called characters in the write-up, are tokens
(their AIME means equal the completion-token means of the token table to the last digit).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import Bands, Groups, Pool, Splits, TrainingPools, TrainingSeries
from storage.errors import UserError
from storage.rules import Band, band

Row = dict[str, Any]
PUBLISHED_BANDS = {"all_zero": Band.ALL_ZERO, "variance_band": Band.VARIANCE, "all_one": Band.ALL_ONE}


def rows_of(path: Path) -> list[Row]:
    """Rows of a JSON Lines file. Errors: UserError naming the line that is no JSON object."""
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise UserError(f"{path.name} line {number}: not JSON; the published file is damaged") from None
        if not isinstance(row, dict):
            raise UserError(f"{path.name} line {number}: not an object; the published file is damaged")
        found.append(row)
    return found


def whole(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError:
        raise UserError(f"{path.name}: not JSON; the published file is damaged") from None


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path.name}: not UTF-8 text; the published file is damaged") from None


def table(path: Path, make: Callable[[], list[Row]], schema: pa.Schema) -> pa.Table:
    """Rows in a schema. Errors: UserError naming the file and the field that is missing or of another type."""
    try:
        return pa.Table.from_pylist(make(), schema=schema)
    except KeyError as error:
        raise UserError(f"{path.name}: no field {error}; not the published file that it should be") from None
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise UserError(f"{path.name}: a field is not of its type ({str(error).splitlines()[0][:100]})") from None


def bands(path: Path, arm: str) -> pa.Table:
    """variance_band/*/per_problem.jsonl. Schema: Bands. Bands are recomputed; a stated one that differs is an error."""

    def make() -> list[Row]:
        rows = []
        for r in rows_of(path):
            n, c = r["n_samples"], r["n_correct"]
            name = band(c, n)
            if PUBLISHED_BANDS.get(r["band"]) != name:
                raise UserError(f"{path.name}: {r['uid']} has {c} of {n} correct but is called {r['band']}")
            rows.append(
                {
                    "problem_id": r["uid"],
                    "source": r["source"],
                    "arm": arm,
                    "group_size": n,
                    "num_correct": c,
                    "band": name,
                }
            )
        return rows

    return _unique(table(path, make, Bands.schema), path)


def _unique(made: pa.Table, path: Path) -> pa.Table:
    names = made["problem_id"].to_pylist()
    if len(set(names)) != len(names):
        raise UserError(f"{path.name}: a problem occurs twice")
    return made


def groups(path: Path, arm: str, adapter: str) -> pa.Table:
    """`per_problem` of an evaluation's summary.json. Schema: Groups; source: `L1`…`L5` or the AIME year."""

    def one(r: Row) -> Row:
        aime = "problem_idx" in r
        return {
            "arm": arm,
            "step": 0,
            "adapter": adapter,
            "seed": 0,
            "group_size": r["n_samples"],
            "num_correct": r["n_correct"],
            "source": f"AIME {r['year']}" if aime else f"L{r['level']}",
            "problem_id": f"aime{r['year']}_{r['problem_idx']}" if aime else r["unique_id"],
        }

    return _unique(table(path, lambda: [one(r) for r in whole(path)["per_problem"]], Groups.schema), path)


def diversity(path: Path, label: str, arm: str, window: str, schema: pa.Schema) -> pa.Table:
    """One variant of a diversity file. `schema` is that of the diversity stage."""

    def one(r: Row) -> Row:
        level = str(r["level"])
        return {
            "problem_id": r["uid"],
            "source": f"L{level}" if level.isdigit() else f"AIME {r['uid'][4:8]}",
            "arm": arm,
            "step": 0,
            "seed": 0,
            "window": window,
            "n": r["n_samples"],
            "num_correct": r["n_correct"],
            "diversity": r["mean_pairwise_dist"],
            "spread": r["emb_variance_trace"] * r["n_samples"] / (r["n_samples"] - 1),
            "clusters": r["distinct_strategies"],
            "num_tokens": r["len_mean"],
            "length_cv": r["len_cv"],
            "share_correct": r["n_correct"] / r["n_samples"],
            "per_1000_tokens": 1000 * r["mean_pairwise_dist"] / r["len_mean"],
        }

    made = table(path, lambda: [one(r) for r in rows_of(path) if r["label"] == label], schema)
    if made.num_rows == 0:
        raise UserError(f"{path.name}: no rows labelled {label}")
    return _unique(made, path)


def pools(paths: dict[str, Path]) -> pa.Table:
    """Which problem is in which published pool (a problem may be in both training pools). Schema: TrainingPools."""
    parts = []
    for name, path in paths.items():

        def make(name: str = name, path: Path = path) -> list[Row]:
            return [{"pool": name, "problem_id": r["uid"], "source": r["source"]} for r in rows_of(path)]

        parts.append(_unique(table(path, make, TrainingPools.schema), path))
    return pa.concat_tables(parts)


def pool(paths: list[Path]) -> pa.Table:
    """The problems whose text was published, each once. Schema: Pool; golds as published, unchecked."""
    seen: dict[str, Row] = {}
    for path in paths:

        def make(path: Path = path) -> list[Row]:
            return [
                {
                    "problem_id": r["uid"],
                    "source": r["source"],
                    "source_id": r["uid"],
                    "problem": r["problem"],
                    "gold": r["gold"],
                    "gold_raw": r["gold"],
                    "answer_type": r["answer_type"],
                    "cluster": r["uid"],
                    "year": r.get("year"),
                }
                for r in rows_of(path)
            ]

        for row in table(path, make, Pool.schema).to_pylist():
            seen.setdefault(row["problem_id"], row)
    return pa.Table.from_pylist(list(seen.values()), schema=Pool.schema)


def splits(heldout: Path, others: list[Path]) -> pa.Table:
    """The evaluation problems are held out, all others are not. Schema: Splits."""
    held = {r["problem_id"] for r in pool([heldout]).to_pylist()}
    rows = [
        {
            "problem_id": r["problem_id"],
            "source": r["source"],
            "split": "heldout" if r["problem_id"] in held else "train",
        }
        for r in pool([heldout, *others]).to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=Splits.schema)


STEP_METRICS = {
    "correct": "correct_mean",
    "reward": "reward_mean",
    "tag_valid": "tag_valid_mean",
    "ac_tokens_per_turn": "length_mean",
    "frac_mixed": "live_groups",
    "frac_all_bad": "all_zero_share",
    "frac_all_good": "all_one_share",
    "entropy": "entropy",
}


def series(steps: Path, spread: Path) -> pa.Table:
    """Training's own series, long. Schema: TrainingSeries; n: rollouts of the step."""
    per_step = table(
        steps,
        lambda: [
            {"arm": "panel", "step": r["batch"], "metric": name, "value": r[field], "n": None}
            for r in rows_of(steps)
            for field, name in STEP_METRICS.items()
        ],
        TrainingSeries.schema,
    )
    lengths = table(
        spread,
        lambda: [
            {
                "arm": "panel",
                "step": r["batch"],
                "metric": "length_cv_within",
                "value": r["ac_len_cv_within_group"],
                "n": r["n_rollouts"],
            }
            for r in rows_of(spread)
        ],
        TrainingSeries.schema,
    )
    return pa.concat_tables([per_step, lengths])
