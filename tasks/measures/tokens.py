"""Token efficiency: tokens per correct answer, and lengths compared in pairs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Rollouts, Tokens
from storage.sql import query
from tasks.domain.statistics.curves_of_k import levels
from tasks.domain.statistics.means import ADAPTERS, Seeded, combined, contrast, folded, on_common_problems
from tasks.domain.statistics.paired_tests import in_families, wilcoxon
from tasks.domain.statistics.shares import SCARCE
from tasks.evidence import standard_measure
from tasks.measures.groups import COLUMNS, Row, count_groups, counts_of, seeded, with_clusters
from tasks.stage import stage, store

# ---- ratios of sums over the same problems, with variances by linearisation (delta method)

SUMS = ("num_tokens", "num_correct", "num_answered", "group_size", "truncated")
TOKENS, CORRECT, ANSWERED, SIZE = range(4)


def cost_rows(groups: pa.Table) -> list[Row]:
    """Return rows for each (arm, step) and source, and for every two (arm, step).

    metric: `tokens_per_correct`; `tokens_per_correct_ratio`, arm divided by other on their common problems;
    `accuracy_answered`, the share of correct rollouts among rollouts with an answer. Intervals are over problems and
    seeds, on the problems that every seed has. A value is None if no rollout is correct, or none has an answer.
    `truncated`: share of truncated rollouts.
    """
    counts, rows, found = counts_of(groups), list[Row](), dict[tuple[str, int, str], Seeded]()
    for place in counts.places:
        of, about = counts.at(place), dict(zip(("arm", "step", "source"), place, strict=True))
        found[place] = one = seeded(of, SUMS)
        kept_N = np.isin(of["problem"], one.problem_P)
        total = {name: int(of[name][kept_N].sum()) for name in SUMS}
        about |= {"n": len(one.problem_P), "num_correct": total["num_correct"], "num_tokens": total["num_tokens"]}
        if size := total["group_size"]:
            about |= {"mean": total["num_tokens"] / size, "truncated": total["truncated"] / size}
        rows.append(about | {"metric": "tokens_per_correct"} | _cost([one]))
        rows.append(about | {"metric": "accuracy_answered"} | _of_answered(one))
    for one, other in combinations(found, 2):
        if one[2] == other[2]:
            pair = on_common_problems([found[one], found[other]])
            about = {"arm": one[0], "step": one[1], "other": other[0], "other_step": other[1], "source": one[2]}
            row = about | {"metric": "tokens_per_correct_ratio", "n": len(pair[0].problem_P)} | _cost(pair)
            if "low" in row and min(_worth(policy) for policy in pair) < SCARCE:
                why = f"fewer than {SCARCE:g} problems' worth of correct answers"
                row |= {"low": None, "high": None, "reason": why}
            rows.append(row)
    return rows


def _worth(policy: Seeded) -> float:
    """Return the sum of success rates over problems."""
    size_P = np.maximum(policy.values_SPV[0, :, SIZE], 1)
    return float((policy.values_SPV[:, :, CORRECT].mean(axis=0) / size_P).sum())


def _cost(policies: Sequence[Seeded]) -> Row:
    """Return tokens per correct answer of one policy, or the ratio of two, with an interval on the log scale."""
    sums = [one.values_SPV[:, :, [TOKENS, CORRECT]].mean(axis=(0, 1)) for one in policies if len(one.problem_P)]
    if not sums or not all(total.all() for total in sums):
        return {"reason": "no rollout is correct" if sums else "no problem that every seed was asked"}
    linear = []
    for one, (tokens, correct) in zip(policies, sums, strict=True):
        away_SP = one.values_SPV[:, :, TOKENS] / tokens - one.values_SPV[:, :, CORRECT] / correct
        linear.append(one.replaced(away_SP[:, :, None]))
    means = contrast((1.0, -1.0)[: len(linear)], linear, shares=False)
    costs = [tokens / correct for tokens, correct in sums]
    estimate = float(costs[0] / costs[1] if len(costs) > 1 else costs[0])
    row: Row = {"estimate": estimate, "seeds": means.seeds or None, "holds_for": means.holds_for}
    with np.errstate(over="ignore"):
        low, high = (estimate * float(np.exp(end[0])) for end in means.interval())
    if not 0 < low <= high < np.inf:
        return row | {"reason": means.unknown(0, "every problem costs alike: no interval")}
    return row | {"low": low, "high": high, "method": "t of the logarithm"}


def _of_answered(policy: Seeded) -> Row:
    """Return correct over answered rollouts, with Wilson's interval on the variance of the linearised share."""
    values_SPV = policy.values_SPV
    if not len(policy.problem_P) or values_SPV[:, :, ANSWERED].sum() == 0:
        return {"reason": "no rollout gave an answer"}
    correct_SP, answered_SP = values_SPV[:, :, CORRECT], values_SPV[:, :, ANSWERED]
    share = correct_SP.mean() / answered_SP.mean()
    linear = policy.replaced((share + (correct_SP - share * answered_SP) / answered_SP.mean())[:, :, None])
    row = levels(linear.clustered(), policy.trained)[0]
    seeds = len(policy.adapter_S) if policy.trained else None
    return row | {"seeds": seeds, "method": "Wilson on the effective number of problems"}


# ---- lengths of two policies by problem: mean tokens of paired rollouts, by which of the two is correct (`bucket`)

PAIRS = """
    with ranked as (
        select *, dense_rank() over (partition by arm, step order by coalesce(adapter, ''), seed) as replicate
        from rollouts),
    pairs as (
        select a.arm, a.step, b.arm as other, b.step as other_step, a.source, problem_id,
               a.num_tokens as x, b.num_tokens as y, a.finish = 'length' as cut, b.finish = 'length' as other_cut,
               case when a.correct and b.correct then 'both_correct' when a.correct then 'arm_only'
                    when b.correct then 'other_only' else 'neither' end as bucket
        from ranked a join ranked b using (problem_id, rollout, replicate) where (a.arm, a.step) < (b.arm, b.step)),
    by_problem as (
        select arm, step, other, other_step, source, coalesce(bucket, 'all_paired') as bucket, problem_id,
               avg(x) as x, avg(y) as y, avg(cut::int) as cut, avg(other_cut::int) as other_cut
        from pairs group by grouping sets ((arm, step, other, other_step, source, problem_id, bucket),
                                           (arm, step, other, other_step, source, problem_id))),
    sliced as (from by_problem union all by name select * replace ('all' as source) from by_problem)
    select arm, step, other, other_step, source, bucket, count(*) as n, avg(x) as mean, avg(y) as other_mean,
           median(x) as median, median(y) as other_median, median(y / x) as ratio_median,
           exp(avg(ln(y / x))) as ratio_geomean, min(y / x) as ratio_min, max(y / x) as ratio_max,
           count(*) filter (where y > x) as longer_in, avg(cut) as truncated, avg(other_cut) as other_truncated,
           list(x order by problem_id) as xs, list(y order by problem_id) as ys,
           list(problem_id order by problem_id) as problems
    from sliced where x > 0 and y > 0
    group by all order by arm, step, other, other_step, source, bucket
"""


def length_rows(rollouts: pa.Table, cluster_of: Mapping[str, str] = MappingProxyType({})) -> list[Row]:
    """Compare the lengths of every two policies by bucket: which of the two is correct, or `all_paired`. Ratios are
    other divided by arm. longer_in: problems where the other is longer. cluster_of: problem → cluster."""
    rows = query(PAIRS, rollouts=rollouts).to_pylist()
    for row in rows:
        x_P, y_P = (np.array(row.pop(name), np.float64) for name in ("xs", "ys"))
        cluster_P = np.unique([cluster_of.get(p, p) for p in row.pop("problems")], return_inverse=True)[1]
        found = combined([(1.0, folded(np.log(y_P / x_P)[None, :, None], cluster_P))], [False])
        row |= {"metric": "bucket", "p_wilcoxon": wilcoxon(y_P - x_P, cluster_P)}
        row["holds_for"] = ADAPTERS if row["step"] or row["other_step"] else None  # because seeds are averaged
        if found.known_V[0]:
            row["ratio_low"], row["ratio_high"] = (float(np.exp(end[0])) for end in found.interval())
        else:
            row["reason"] = found.unknown(0, "every problem has the same ratio: no interval")
    strangers = query(
        """
        with p as (select distinct arm, step from rollouts)
        select a.arm, a.step, b.arm as other, b.step as other_step, 'bucket' as metric, 0 as n,
               'no problem in common' as reason
        from p a join p b on (a.arm, a.step) < (b.arm, b.step)
        where (a.arm, a.step, b.arm, b.step) not in (select (arm, step, other, other_step) from found) order by all
        """,
        rollouts=rollouts,
        found=pa.Table.from_pylist(rows, schema=Tokens.schema),
    )
    return rows + strangers.to_pylist()


def tokens_of(rollouts: pa.Table, clusters: Callable[[pa.Table], pa.Table] = lambda groups: groups) -> pa.Table:
    """Return the rows of `cost_rows` and `length_rows`. Schema: Tokens. clusters: adds `cluster` to groups."""
    groups = clusters(count_groups(rollouts))
    cluster = "cluster" if "cluster" in groups.column_names else "problem_id"
    cluster_of = dict(zip(groups["problem_id"].to_pylist(), groups[cluster].to_pylist(), strict=True))
    rows = cost_rows(groups) + length_rows(rollouts, cluster_of)
    return pa.Table.from_pylist(
        in_families(rows, lambda row: ("token lengths", "bh"), "p_wilcoxon"), schema=Tokens.schema
    )


@standard_measure("tokens", rollouts="final")
@stage(Tokens, version=12)
def measure_tokens(*, rollouts: tuple[Rollouts, ...]) -> pa.Table:
    """Return tokens per correct answer, truncated shares, accuracy among answered rollouts, and paired lengths."""
    read = pa.concat_tables([store().read(ref, COLUMNS) for ref in rollouts])
    return tokens_of(read, lambda groups: with_clusters(groups, rollouts))
