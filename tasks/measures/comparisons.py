"""Policies compared in pairs on their common problems, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import DiversityComparison
from storage.sql import query
from tasks.domain.statistics.contrasts_of_k import told_of
from tasks.domain.statistics.families import Family, in_families
from tasks.domain.statistics.means import ONE_PROBLEM, Means, combined, folded, ratio_of_policies
from tasks.domain.statistics.paired_tests import explained_difference, paired, unblurred, unsupported
from tasks.domain.statistics.seeded import Seeded, by_seed, same_adapters
from tasks.domain.statistics.windows import of_tokens

COLUMNS = ("diversity", "diversity_correct", "n", "coverage", "num_tokens", "share_correct")
Policies = dict[tuple[str, int], Seeded]


def compare_columns(tables: Sequence[pa.Table], metrics: Sequence[str], draws: int, seed: int) -> pa.Table:
    """Every two (arm, step), paired by problem; columns of DiversityComparison.schema.

    basis: `all` problems on which both are defined, or `equal_n`, those on which both have equally many traces. low,
    high, p_value, adjusted_*: over problems, near-duplicates (`cluster` of a table that has it) as one, and, for what
    was trained, seeds: those of a table's `adapter`, where it has this column, which pair arms of the same adapters;
    else the artifacts of an (arm, step) are its replicates.
    t, p_t, p_normal, p_flip, p_wilcoxon, boot_*: of the seeds' means, as publications print them, uncorrected; no table
    of the report has them. p_adjusted and adjusted_p_corrected, of p_value and adjusted_p: Benjamini and Hochberg over
    whole traces at equal n, and over the rest.
    adjusted_*: the difference left where log length and accuracy do not differ, or accuracy alone in a window of
    tokens; adjusted_reason: why there is none.
    """
    rows: list[dict[str, Any]] = []
    by_window = _policies(tables)
    for window, policies in by_window.items():
        for metric in metrics:
            for basis in ("all", "equal_n"):
                rows += [
                    _compare(policies, window, metric, basis, first, second, draws, seed)
                    for first, second in combinations(policies, 2)
                ]
    corrected = in_families(rows, _family, beside=("adjusted_p",))
    return pa.Table.from_pylist(corrected, schema=DiversityComparison.schema)


def _family(row: dict[str, Any]) -> Family:
    declared = (row["metric"], row["window"], row["basis"]) == ("diversity", "whole", "equal_n")
    return "diversity of whole traces at equal n" if declared else "diversity, explored", "bh"


def _policies(tables: Sequence[pa.Table]) -> dict[str, Policies]:
    """window → (arm, step) → COLUMNS and the cluster, by replicate and problem. An untrained policy (step 0) is one
    replicate."""
    known = [t if "cluster" in t.column_names else t.append_column("cluster", t["problem_id"]) for t in tables]
    numbered = [
        t
        if "adapter" in t.column_names
        else t.append_column("adapter", pa.array([f"artifact {i}"] * t.num_rows, pa.string()))
        for i, t in enumerate(known)
    ]
    rows = query(
        f"""
        select "window", arm, step, dense_rank() over (order by problem_id) as problem,
               case when step = 0 then 0 else dense_rank() over (order by adapter) end as replicate,
               {", ".join(f'"{c}"::double as "{c}"' for c in COLUMNS)},
               dense_rank() over (order by coalesce(cluster, problem_id))::double as cluster
        from measured order by all
        """,
        measured=pa.concat_tables(numbered),
    )
    keys = list(zip(*(rows[c].to_pylist() for c in ("window", "arm", "step")), strict=True))
    problem_N, replicate_N = (rows[c].to_numpy() for c in ("problem", "replicate"))
    values_NV = np.column_stack([np.array(rows[c].to_pylist(), np.float64) for c in (*COLUMNS, "cluster")])
    found: dict[str, Policies] = {}
    for key in sorted(set(keys)):
        mine = np.array([k == key for k in keys])
        found.setdefault(key[0], {})[key[1:]] = by_seed(problem_N[mine], replicate_N[mine], values_NV[mine])
    return found


def _compare(
    policies: Policies,
    window: str,
    metric: str,
    basis: str,
    first: tuple[str, int],
    second: tuple[str, int],
    draws: int,
    seed: int,
) -> dict[str, Any]:
    a, b = policies[first], policies[second]
    _, in_a, in_b = np.intersect1d(a.problem_P, b.problem_P, return_indices=True)
    x_SPV, y_SPV = a.values_SPV[:, in_a], b.values_SPV[:, in_b]
    kept_P = np.isfinite(x_SPV[:, :, COLUMNS.index(metric)]).all(axis=0)
    kept_P &= np.isfinite(y_SPV[:, :, COLUMNS.index(metric)]).all(axis=0)
    x, y = ({c: v[:, :, i].mean(axis=0) for i, c in enumerate(COLUMNS)} for v in (x_SPV, y_SPV))
    if basis == "equal_n":
        kept_P &= x["n"] == y["n"]
    x, y = ({c: v[kept_P] for c, v in one.items()} for one in (x, y))
    result = asdict(paired(x[metric], y[metric], draws=draws, seed=seed))
    row: dict[str, Any] = {
        "metric": metric,
        "basis": basis,
        "window": window,
        "source": "all",
        "arm": first[0],
        "step": first[1],
        "other": second[0],
        "other_step": second[1],
        "mean": result.pop("mean_first"),
        "other_mean": result.pop("mean_second"),
    }
    row |= {k: v for k, v in result.items() if k not in ("sd", "low", "high")}
    if not result["n"]:
        return row
    for name, one in (("coverage", x), ("other_coverage", y)):
        if np.isfinite(one["coverage"]).all():
            row[name] = float(one["coverage"].mean())
    place, cluster_P = COLUMNS.index(metric), x_SPV[0, kept_P, -1]
    one, other = (folded(v[:, kept_P, place, None], cluster_P) for v in (x_SPV, y_SPV))
    trained, shared = (a.trained, b.trained), same_adapters([a.adapter_S, b.adapter_S])
    means = combined([(1.0, one), (-1.0, other)], trained, paired=shared)
    if min(x[metric].sum(), y[metric].sum()) > 0:
        _, low, high = ratio_of_policies(one[:, :, 0], other[:, :, 0], trained, paired=shared)
        row |= {"relative_low": low - 1, "relative_high": high - 1} if np.isfinite(low) else {}
    row |= {
        k: v for k, v in told_of(means, int(kept_P.sum()), alike="")[0].items() if k not in ("estimate", "n", "reason")
    }
    if result["n"] > 1 and means.n < 2:
        return row | {"reason": ONE_PROBLEM, "adjusted_reason": f"not adjusted: {ONE_PROBLEM}"}
    seeds = (len(x_SPV), len(y_SPV))
    noise = sum(
        float((v["share_correct"] * (1 - v["share_correct"]) / np.maximum(v["n"] - 1, 1)).mean()) / s
        for v, s in zip((x, y), seeds, strict=True)
    )
    if of_tokens(window):  # as much is shown of each
        x, y = ({**v, "num_tokens": np.ones_like(v["num_tokens"])} for v in (x, y))
    return row | _adjusted(x, y, metric, means, cluster_P, noise)


def _adjusted(
    x: dict[str, np.ndarray], y: dict[str, np.ndarray], metric: str, means: Means, cluster_P: np.ndarray, noise: float
) -> dict[str, Any]:
    """adjusted_* of a comparison, or adjusted_reason. noise: variance that few rollouts give a difference in
    accuracy."""
    if not (x["num_tokens"] > 0).all() or not (y["num_tokens"] > 0).all():
        return {"adjusted_reason": "not adjusted: lengths are not known"}
    longer_P = np.log(x["num_tokens"] / y["num_tokens"])
    if why := unsupported(longer_P):
        return {"adjusted_reason": why}
    d_P = x[metric] - y[metric]
    more, freedom = float(means.spread.seeds_V[0]), float(means.spread.seeds_df_V[0])
    better_P = x["share_correct"] - y["share_correct"]
    left = explained_difference(d_P, longer_P, better_P, cluster_P, more, freedom if more else np.inf)
    if not isinstance(left, str):
        left = unblurred(left, d_P, longer_P, better_P, noise)
    if isinstance(left, str):
        return {"adjusted_reason": left}
    return dict(zip(("adjusted_difference", "adjusted_low", "adjusted_high", "adjusted_p"), left, strict=True))
