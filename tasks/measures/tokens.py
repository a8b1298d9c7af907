"""Token efficiency: what a correct answer costs, and how lengths compare pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Rollouts, Tokens
from storage.sql import query
from tasks.domain.statistics.means import ADAPTERS, Seeded, by_seed, combined, folded, holds_for, ratio, seeds_of
from tasks.domain.statistics.paired_tests import in_families, wilcoxon
from tasks.measures.groups import COLUMNS, count_groups, counts_of, together, with_clusters
from tasks.measures.standard import standard_measure
from tasks.stage import stage, store

# Token costs: what a correct answer costs under each policy, and how two policies' lengths compare pair by pair.


def cost_rows(groups: pa.Table) -> list[dict[str, Any]]:
    """`tokens_per_correct` of each (arm, step) and source: a ratio of sums, with its interval over problems and seeds,
    of the problems that every seed was asked (of all, without an interval, where there is none). Null where nothing is
    correct. `truncated` stands beside it."""
    counts, rows = counts_of(groups), []
    for arm, step, source in counts.places:
        of = counts.at((arm, step, source))
        of_seeds = np.column_stack([of["num_tokens"], of["num_correct"], of["cluster"]])
        found = by_seed(of["problem"], of["adapter"], of_seeds)
        kept_N = np.isin(of["problem"], found.problem_P) if len(found.problem_P) else np.ones(len(of_seeds), bool)
        total = {name: int(column[kept_N].sum()) for name, column in of.items()}
        row: dict[str, Any] = {
            "metric": "tokens_per_correct",
            "arm": arm,
            "step": step,
            "source": source,
            "n": len(np.unique(of["problem"][kept_N])),
            "num_correct": total["num_correct"],
            "num_tokens": total["num_tokens"],
            "mean": total["num_tokens"] / total["group_size"],
            "truncated": total["truncated"] / total["group_size"],
        }
        if total["num_correct"] == 0:
            rows.append(row | {"reason": "no rollout is correct"})
            continue
        rows.append(row | {"estimate": total["num_tokens"] / total["num_correct"]} | _bounds(found))
    return rows


def _bounds(found: Seeded) -> dict[str, Any]:
    """The ratio's interval, how it was made, and what it holds for; or why there is none."""
    row: dict[str, Any] = {"seeds": len(found.values_SPV)}
    if not found.values_SPV[:, :, 1].any():
        return row | {"reason": "no interval: no problem that every seed was asked has a correct rollout"}
    values_SCV = folded(found.values_SPV, found.values_SPV[0, :, 2])
    tokens_SP, correct_SP = values_SCV[:, :, 0], values_SCV[:, :, 1]
    _, low, high = ratio(tokens_SP, correct_SP, found.trained)
    if not np.isfinite(low):
        alike = "one problem, few near-duplicates that most are, or all alike, have no spread"
        return row | {"reason": f"no interval: {alike}"}
    seeds = seeds_of([(1.0, tokens_SP)], [found.trained])
    return row | {"low": low, "high": high, "method": "t of the logarithm", "holds_for": holds_for(seeds)}


def numbered(arm: str, step: str) -> str:
    """SQL of the rollouts of one (arm, step), given by parameters of these names, with their replicate: the
    how-manieth of its trainings."""
    mine = f"from rollouts where arm = ${arm} and step = ${step}"
    return f"""
        select source, problem_id, rollout, correct, num_tokens, finish, replicate
        from (select * {mine}) r join (
            select adapter, seed, row_number() over (order by coalesce(adapter, ''), seed) as replicate
            from (select distinct adapter, seed {mine})) p
        on r.seed = p.seed and r.adapter is not distinct from p.adapter
    """


def bucket_rows(
    rollouts: pa.Table,
    first: tuple[str, int],
    second: tuple[str, int],
    cluster_of: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Two policies, `rollout` by rollout as published and `problem` by problem as it should be (mean tokens of the
    problem's rollouts in the bucket), by who is correct. Ratios are other over arm; longer_in counts pairs in which
    the other is longer. p_wilcoxon is given for problems only: rollouts of one problem are no independent pairs.
    cluster_of: the cluster of a problem that has near-duplicates.
    """
    names = {"arm": first[0], "step": first[1], "other": second[0], "other_step": second[1]}
    pairs = query(
        f"""
        with a as ({numbered("arm", "step")}), b as ({numbered("other", "other_step")})
        select a.source, a.problem_id, a.num_tokens as x, b.num_tokens as y,
               a.finish = 'length' as cut, b.finish = 'length' as other_cut,
               case when a.correct and b.correct then 'both_correct' when a.correct then 'arm_only'
                    when b.correct then 'other_only' else 'neither' end as bucket
        from a join b using (problem_id, rollout, replicate)
        """,
        names,
        rollouts=rollouts,
    )
    if pairs.num_rows == 0:
        return [names | {"metric": "bucket", "n": 0, "reason": "no problem in common"}]
    alone = query(
        """
        select distinct source from rollouts
        where (arm = $arm and step = $step or arm = $other and step = $other_step)
              and source not in (select source from pairs) order by source
        """,
        names,
        rollouts=rollouts,
        pairs=pairs,
    )
    rows: list[dict[str, Any]] = [
        names | {"metric": "bucket", "source": source, "n": 0, "reason": "no problem in common"}
        for source in alone["source"].to_pylist()
    ]
    for pairing, unit, lists in (("rollout", "from tall", ""), ("problem", PER_PROBLEM, LISTS)):
        for row in query(SUMMARY.format(unit=unit, lists=lists), pairs=pairs).to_pylist():
            x, y, problems = (row.pop(name, None) for name in ("xs", "ys", "problem_ids"))
            if pairing == "rollout":
                row["reason"] = "rollouts of one problem are no independent pairs: no interval"
            else:
                clusters = np.unique([cluster_of.get(p, p) for p in problems], return_inverse=True)[1]
                row |= _compared(np.array(x, np.float64), np.array(y, np.float64), clusters)
                row["holds_for"] = ADAPTERS if first[1] or second[1] else None  # seeds are averaged
            rows.append(names | row | {"metric": "bucket", "pairing": pairing})
    return rows


def _compared(x_P: np.ndarray, y_P: np.ndarray, cluster_P: np.ndarray) -> dict[str, Any]:
    """The interval of the geometric mean of the problems' ratios, other over arm, and the signed ranks' p."""
    found = combined([(1.0, folded(np.log(y_P / x_P)[None, :, None], cluster_P))], [False])
    row: dict[str, Any] = {"p_wilcoxon": wilcoxon(y_P - x_P, cluster_P)}
    if found.known_V[0]:
        ends = zip(("low", "high"), found.interval(), strict=True)
        return row | {f"ratio_{end}": float(np.exp(v[0])) for end, v in ends}
    return row | {"reason": found.unknown(0, "every problem has the same ratio: no interval")}


PER_PROBLEM = """
    from (select source, bucket, problem_id, avg(x) as x, avg(y) as y, avg(cut::int) as cut,
                 avg(other_cut::int) as other_cut from tall group by source, bucket, problem_id)
"""
LISTS = "".join(f", list({c} order by problem_id) as {c}s" for c in ("x", "y", "problem_id"))
SUMMARY = """
    with grouped as (select source, bucket, problem_id, x, y, cut, other_cut from pairs
                     union all select source, 'all_paired', problem_id, x, y, cut, other_cut from pairs),
         tall as (select * from grouped union all select 'all' as source, * exclude (source) from grouped)
    select source, bucket, count(*) as n, avg(x) as mean, avg(y) as other_mean, median(x) as median,
           median(y) as other_median, avg(y / x) as ratio_mean, median(y / x) as ratio_median,
           exp(avg(ln(y / x))) as ratio_geomean, min(y / x) as ratio_min, max(y / x) as ratio_max,
           sum(y) / sum(x) as global_ratio, count(*) filter (where y > x) as longer_in,
           avg(cut::double) as truncated, avg(other_cut::double) as other_truncated {lists}
    {unit} where x > 0 and y > 0
    group by source, bucket order by source <> 'all', source, bucket
"""


def tokens_of(rollouts: pa.Table, clusters: Callable[[pa.Table], pa.Table] = lambda groups: groups) -> pa.Table:
    """Columns of Tokens.schema. metric: `tokens_per_correct` (one (arm, step) and source) or `bucket` (two of them).
    clusters: adds to groups which problems are near-duplicates."""
    groups = clusters(count_groups(rollouts))
    rows = cost_rows(groups)
    policies = query("select distinct arm, step from groups order by arm, step", groups=groups).to_pylist()
    cluster_of = {}
    if "cluster" in groups.column_names:
        cluster_of = dict(zip(groups["problem_id"].to_pylist(), groups["cluster"].to_pylist(), strict=True))
    for first, second in combinations([(p["arm"], p["step"]) for p in policies], 2):
        rows += bucket_rows(rollouts, first, second, cluster_of)
    return pa.Table.from_pylist(
        in_families(rows, lambda row: ("token lengths", "bh"), "p_wilcoxon"), schema=Tokens.schema
    )


@standard_measure("tokens", rollouts="final")
@stage(Tokens, version=11)
def measure_tokens(*, rollouts: tuple[Rollouts, ...]) -> pa.Table:
    """Tokens per correct answer with truncation beside it, and paired lengths by who was correct."""
    read = together([store().read(ref, COLUMNS) for ref in rollouts])
    return tokens_of(read, lambda groups: with_clusters(groups, rollouts))
