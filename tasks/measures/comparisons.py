"""Policies compared in pairs on their common problems, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.domain.statistics.paired_tests import adjust, explained_difference, paired

COMPARISON = pa.schema(
    [
        ("metric", pa.string()),
        ("basis", pa.string()),
        ("window", pa.string()),
        ("source", pa.string()),
        ("arm", pa.string()),
        ("step", pa.int32()),
        ("other", pa.string()),
        ("other_step", pa.int32()),
        ("n", pa.int64()),
        ("mean", pa.float64()),
        ("other_mean", pa.float64()),
        ("difference", pa.float64()),
        ("relative", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("boot_low", pa.float64()),
        ("boot_high", pa.float64()),
        ("t", pa.float64()),
        ("p_t", pa.float64()),
        ("p_normal", pa.float64()),
        ("p_flip", pa.float64()),
        ("p_wilcoxon", pa.float64()),
        ("p_holm", pa.float64()),
        ("d_z", pa.float64()),
        ("d_z_corrected", pa.float64()),
        ("adjusted_difference", pa.float64()),
        ("adjusted_low", pa.float64()),
        ("adjusted_high", pa.float64()),
        ("adjusted_p", pa.float64()),
        ("coverage", pa.float64()),
        ("other_coverage", pa.float64()),
        ("reason", pa.string()),
    ]
)


def compare_columns(tables: Sequence[pa.Table], metrics: Sequence[str], draws: int, seed: int) -> pa.Table:
    """Every two (arm, step), paired by problem; columns of COMPARISON.

    basis: `all` problems on which both are defined, or `equal_n`, those on which both have equally many traces.
    adjusted_*: the difference left where log length and accuracy do not differ. p_holm corrects p_t over one family:
    all pairs of one metric, basis and window. Artifacts of the same (arm, step) are replicates: averaged by problem.
    """
    rows: list[dict[str, Any]] = []
    whole = query(
        """
        select arm, step, "window", problem_id, any_value(source) as source,
               avg(diversity) as diversity, avg(diversity_correct) as diversity_correct, avg(n) as n,
               avg(coverage) as coverage, avg(num_tokens) as num_tokens, avg(share_correct) as share_correct
        from measured group by all order by all
        """,
        measured=pa.concat_tables(tables),
    )
    policies = query('select distinct "window", arm, step from whole order by all', whole=whole).to_pylist()
    for window in dict.fromkeys(p["window"] for p in policies):
        here = [(p["arm"], p["step"]) for p in policies if p["window"] == window]
        for metric in metrics:
            for basis in ("all", "equal_n"):
                family = [
                    _compare(whole, window, metric, basis, first, second, draws, seed)
                    for first, second in combinations(here, 2)
                ]
                fixed = adjust([row["p_t"] for row in family], "holm")  # type: ignore[misc]
                rows += [row | {"p_holm": p} for row, p in zip(family, fixed, strict=True)]
    return pa.Table.from_pylist(rows, schema=COMPARISON)


def _compare(
    whole: pa.Table,
    window: str,
    metric: str,
    basis: str,
    first: tuple[str, int],
    second: tuple[str, int],
    draws: int,
    seed: int,
) -> dict[str, Any]:
    name = '"' + metric + '"'
    pairs = query(
        f"""
        select a.{name} as x, b.{name} as y, a.coverage as cx, b.coverage as cy,
               ln(nullif(a.num_tokens, 0) / nullif(b.num_tokens, 0)) as longer,
               a.share_correct - b.share_correct as better
        from whole a join whole b using (problem_id, "window")
        where "window" = $window and a.arm = $arm and a.step = $step and b.arm = $other and b.step = $other_step
              and x is not null and y is not null and ($basis = 'all' or a.n = b.n)
        order by problem_id
        """,
        {
            "window": window,
            "arm": first[0],
            "step": first[1],
            "other": second[0],
            "other_step": second[1],
            "basis": basis,
        },
        whole=whole,
    )
    column = {c: np.array(pairs[c].to_pylist(), np.float64) for c in pairs.column_names}
    result = asdict(paired(column["x"], column["y"], draws=draws, seed=seed))
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
    row |= {k: v for k, v in result.items() if k != "sd"}
    for name, seen in (("coverage", column["cx"]), ("other_coverage", column["cy"])):
        if result["n"] and np.isfinite(seen).all():
            row[name] = float(seen.mean())
    if result["n"] and np.isfinite(column["longer"]).all():
        left = explained_difference(column["x"] - column["y"], np.stack([column["longer"], column["better"]], axis=1))
        if left:
            names = ("adjusted_difference", "adjusted_low", "adjusted_high", "adjusted_p")
            row |= dict(zip(names, left, strict=True))
    return row
