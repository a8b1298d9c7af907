"""Test-time search: accuracy within a token budget, curves over budgets, and comparisons of search methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2

import numpy as np
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Searches
from storage.sql import query
from tasks.domain.search.registry import BASE
from tasks.domain.statistics.curves_of_k import estimate_rows, levels
from tasks.domain.statistics.means import Seeded, contrast, folded, on_common_problems
from tasks.domain.statistics.paired_tests import Family, in_families
from tasks.evidence import standard_measure
from tasks.measures.groups import Row, counts_of, seeded, with_clusters
from tasks.stage import stage, store

# ---- the answer of each search within a budget, by problem, from which curves and contrasts are computed

#: The upper bound: the accuracy if a perfect selector picked among all rollouts within the budget.
ORACLE = "oracle (pass@k)"
PASS_AT_1 = "pass@1"
COLUMNS = ["problem_id", "arm", "adapter", "step", "method", "round", "correct", "cut", "chosen_correct"]
COLUMNS += ["num_prompt_tokens", "num_tokens", "num_scored_tokens"]
Place = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Searched:
    """One policy under one method, by seed and problem; the last column is the cluster of near-duplicates.

    shares: correctness within each budget, then its mean over all budgets up to the largest (the area). slopes: share
    of correct answers gained per doubling of the budget. tokens_V, rollouts_V: means spent within each budget.
    answered: share of problems with a round within the smallest budget.
    """

    shares: Seeded
    slopes: Seeded | None
    tokens_V: list[float]
    rollouts_V: list[float]
    answered: float


def late(smallest: int, *searches: Searched) -> str | None:
    """Return a note on slopes that include a first answer; None if the first round of every problem fits the budget."""
    shares = [one.answered for one in searches]
    where = f"of problems have a round within {smallest} tokens"
    return None if min(shares) == 1 else f"{' and '.join(f'{share:.0%}' for share in shares)} {where}"


def searched(refs: Sequence[Searches], budgets: Sequence[int]) -> dict[Place, Searched]:
    """Return (arm, step, method) → the results of its searches. budgets: tokens, ascending."""
    rows = pa.concat_tables([store().read(ref, COLUMNS) for ref in refs])
    return within_budgets(with_clusters(rows, refs), budgets)


#: Answers per problem with the tokens spent until each. pass@1 weights a rollout by its chance to be first, over all
#: orders that give the same set. A plain mean would be too low: sampling stops when the budget is spent, so the last
#: rollout is often long, and long rollouts are more often wrong.
ANSWERS = """
    with rounds as (
        select arm, step, coalesce(adapter, '') as adapter, method, problem_id, cluster, round,
               sum(num_prompt_tokens + num_tokens + num_scored_tokens)::double as tokens,
               count(*) filter (cut is null) as rollouts, bool_or(chosen_correct)::double as chosen,
               bool_or(correct)::double as any_correct, avg(correct::int) as share
        from nodes group by all),
    base as (select * from rounds where split_part(method, ':', 1) = $base),
    marked as (
        select * from rounds where round = 0 or split_part(method, ':', 1) <> $base
        union all by name
        select * replace ($oracle as method, max(any_correct) over so_far as chosen) from base
        window so_far as (partition by arm, step, adapter, problem_id order by round)),
    ended as (
        select *, sum(tokens) over of_problem - tokens < $most as can_end from base
        window of_problem as (partition by arm, step, adapter, problem_id)),
    drawn as (
        select *, count(*) over of_problem as n, count(*) filter (can_end) over of_problem as ends from ended
        window of_problem as (partition by arm, step, adapter, problem_id)),
    lines as (
        select arm, step, method, adapter, problem_id, cluster, 0 as line, 1.0 as weight, chosen,
               sum(tokens) over so_far as tokens, sum(rollouts) over so_far as rollouts
        from marked window so_far as (partition by arm, step, adapter, method, problem_id order by round)
        union all by name
        select arm, step, $pass_at_1 as method, adapter, problem_id, cluster, round as line, share as chosen, tokens,
               1 as rollouts, case when n = 1 then 1.0 when ends = 0 then 1 / n
                              else (ends - can_end::int) / (ends * (n - 1)) end as weight
        from drawn),
    spans as (
        select *, lead(tokens, 1, $most) over (
            partition by arm, step, method, adapter, problem_id, line order by tokens, chosen, rollouts) as until
        from lines),
    valued as (
        select arm, step, method, adapter, problem_id, cluster, weight,
               sum(chosen * greatest(least(until, $most) - tokens, 0)) / $most as area, {within}
        from spans group by arm, step, method, adapter, problem_id, cluster, line, weight)
    select arm, step, method as source, adapter, 0 as seed, problem_id, cluster, sum(weight * area) as area, {weighted}
    from valued group by all
"""


def within_budgets(nodes: pa.Table, budgets: Sequence[int]) -> dict[Place, Searched]:
    """Return the answers of each method within each budget. nodes: Searches, with the problem's cluster.

    A round counts within a budget if all tokens up to its end (prompts and completions) fit. If no round of a problem
    fits, the problem counts as wrong. The baseline method answers with its first rollout. All its rollouts give two
    reference lines: the oracle, and pass@1, the mean of one rollout.
    """
    names, within = [], []
    for column in ("chosen", "tokens", "rollouts"):
        for place, budget in enumerate(budgets):
            names.append(f"{column}_{place}")
            latest = f"arg_max({column}, row(tokens, chosen, rollouts)) filter (tokens <= {budget})"
            within.append(f"coalesce({latest}, 0) as {names[-1]}")
    weighted = ", ".join(f"sum(weight * {name})::double as {name}" for name in names)
    values = query(
        ANSWERS.format(within=", ".join(within), weighted=weighted),
        {"base": BASE, "oracle": ORACLE, "pass_at_1": PASS_AT_1, "most": budgets[-1]},
        nodes=nodes,
    )
    counts, found, v = counts_of(values), dict[Place, Searched](), len(budgets)
    for place in sorted(place for place in counts.places if place[2] != "all"):
        of = counts.at(place)
        shares, spent = seeded(of, [*names[:v], "area"]), seeded(of, names[v:]).values_SPV
        right_SPV, slopes = shares.values_SPV, None
        if v > 1:
            slope_SP = (right_SPV[:, :, v - 1] - right_SPV[:, :, 0]) / log2(budgets[-1] / budgets[0])
            slopes = shares.replaced(slope_SP[:, :, None])
        tokens, rollouts = (part.mean(axis=(0, 1)).tolist() for part in (spent[:, :, :v], spent[:, :, v:-1]))
        found[place] = Searched(shares, slopes, tokens, rollouts, float((spent[:, :, 0] > 0).mean()))
    return found


# ---- accuracy against tokens: what a policy's diversity is worth when one answer must be given

#: Folds of problems. The best method for a fold is chosen on the other folds.
FOLDS = 10
LINES = (ORACLE, PASS_AT_1)


class SearchCurves(
    Ref,
    kind="search_curves",
    schema=nullable(
        "metric str, series str, arm str, step int, method str, budget big, estimate real, low real, high real",
        "tokens real, rollouts real, n big, clusters big, holds_for str, reason str",
    ),
):
    """Accuracy of one answer within a budget."""


def curves_of(found: dict[Place, Searched], budgets: Sequence[int]) -> pa.Table:
    """Return one row per metric, (arm, step), method and budget, over problems.

    metric: `accuracy` within a budget; `area`, its mean over every budget up to the largest; `slope`, its increase per
    doubling of the budget, from the smallest to the largest; `best`, the accuracy of the method that was best within
    the budget on other problems. series: `method`; `line` (pass@1); `ceiling` (the oracle, which knows the golds).
    tokens, rollouts: spent within the budget, mean over problems.
    """
    rows: list[Row] = []
    for (arm, step, method), one in found.items():
        series = {ORACLE: "ceiling", PASS_AT_1: "line"}.get(method, "method")
        n = len(one.shares.problem_P)
        head = {"series": series, "arm": arm, "step": step, "method": method, "n": n}
        *within, area = levels(one.shares.clustered(), one.shares.trained)
        for budget, tokens, rollouts, intervals in zip(budgets, one.tokens_V, one.rollouts_V, within, strict=True):
            about = {"metric": "accuracy", "budget": budget, "tokens": tokens, "rollouts": rollouts}
            rows.append(head | about | intervals)
        rows.append(head | {"metric": "area", "budget": budgets[-1]} | area)
        if one.slopes is not None:
            means = contrast([1.0], [one.slopes], shares=False)
            [slope] = estimate_rows(means, n, alike="the budget changes nothing on any problem")
            rows.append(head | {"metric": "slope", "budget": budgets[-1], "reason": late(budgets[0], one)} | slope)
    for arm, step in dict.fromkeys(place[:2] for place in found):
        methods = [one for place, one in found.items() if place[:2] == (arm, step) and place[2] not in LINES]
        rows += [{"metric": "best", "arm": arm, "step": step} | row for row in _best_elsewhere(methods, budgets)]
    return pa.Table.from_pylist(rows, schema=SearchCurves.schema)


def _best_elsewhere(methods: Sequence[Searched], budgets: Sequence[int]) -> list[Row]:
    """Return, per budget, the cross-validated accuracy of the best method. The method is chosen on problems of other
    folds, because choosing it on the same problems would bias the accuracy upward. Near-duplicates share a fold."""
    common = on_common_problems([one.shares for one in methods])
    if not len(common[0].problem_P):
        return []
    within_MSPV = np.stack([one.values_SPV[:, :, : len(budgets)] for one in common])
    cluster_P = common[0].cluster_P
    fold_P = np.unique(cluster_P, return_inverse=True)[1] % FOLDS
    crossed_SPV = np.empty_like(within_MSPV[0])
    for fold in np.unique(fold_P):
        others_P = (fold_P != fold) if (fold_P != fold).any() else np.ones_like(fold_P, bool)
        best_V = within_MSPV[:, :, others_P].mean(axis=(1, 2)).argmax(axis=0)
        for place, best in enumerate(best_V):
            crossed_SPV[:, fold_P == fold, place] = within_MSPV[best, :, fold_P == fold, place].T
    intervals = levels(folded(crossed_SPV, cluster_P), common[0].trained)
    about = {"n": len(cluster_P), "clusters": None}  # this metric has no clusters
    return [row | about | {"budget": budget} for budget, row in zip(budgets, intervals, strict=True)]


@standard_measure("search_curves", needs=("searches",))
@stage(SearchCurves, version=6)
def measure_search(*, searches: tuple[Searches, ...], budgets: tuple[int, ...]) -> pa.Table:
    """Return the accuracy of every policy and method within each budget, the area under this curve, and its slope."""
    return curves_of(searched(searches, budgets), budgets)


# ---- methods compared with each other, and arms compared with each other, at equal tokens


class SearchContrasts(
    Ref,
    kind="search_contrasts",
    schema=nullable(
        "metric str, budget big, arm str, step int, method str, other str, other_step int, other_method str",
        "estimate real, low real, high real, p_value real, p_adjusted real, corrected_low real, corrected_high real",
        "family str, detectable real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Paired differences between searches."""


def contrasts_of(found: dict[Place, Searched], budgets: Sequence[int]) -> pa.Table:
    """Compare every two methods of one policy, and every two policies under one method or the oracle.

    Differences are paired by problem, and by seed if both use the same adapters. metric: `accuracy` within each budget,
    `area` and `slope` (see SearchCurves; single-rollout methods have no slope). p_adjusted: Benjamini-Hochberg over the
    methods of one policy, over policies, and over slopes of policies, which test whether diversity helps at test time.
    """
    rows: list[Row] = []
    for one, other in combinations(sorted(found), 2):
        within, between = one[:2] == other[:2], one[2] == other[2]
        if not (within or between) or (within and {one[2], other[2]} & {ORACLE, PASS_AT_1}):
            continue
        head = dict(zip(("arm", "step", "method", "other", "other_step", "other_method"), (*one, *other), strict=True))
        slope = not (between and one[2].partition(":")[0] in (BASE, PASS_AT_1))
        rows += [head | row for row in _differences(found[one], found[other], budgets, slope)]
    return pa.Table.from_pylist(in_families(rows, _family), schema=SearchContrasts.schema)


def _family(row: Row) -> Family:
    if row["method"] != row["other_method"]:
        return "methods of one policy", "bh"
    return ("slopes of two policies" if row["metric"] == "slope" else "policies under one method"), "bh"


def _differences(one: Searched, other: Searched, budgets: Sequence[int], slope: bool) -> list[Row]:
    common, last = on_common_problems([one.shares, other.shares]), budgets[-1]
    if not (n := len(common[0].problem_P)):
        return [{"metric": "area", "budget": last, "n": 0, "reason": "no problem in common"}]
    intervals = estimate_rows(contrast((1.0, -1.0), common, reach=1.0), n, alike="alike on every problem")
    metrics = [*(("accuracy", budget) for budget in budgets), ("area", last)]
    if slope and one.slopes and other.slopes:
        slopes = contrast((1.0, -1.0), on_common_problems([one.slopes, other.slopes]), shares=False)
        [row] = estimate_rows(slopes, n, alike="alike on every problem")
        intervals.append({"reason": late(budgets[0], one, other)} | row)
        metrics.append(("slope", last))
    return [{"metric": m, "budget": b} | row for (m, b), row in zip(metrics, intervals, strict=True)]


@standard_measure("search_contrasts", needs=("searches",))
@stage(SearchContrasts, version=8)
def contrast_search(*, searches: tuple[Searches, ...], budgets: tuple[int, ...]) -> pa.Table:
    """Compare methods and policies in pairs."""
    return contrasts_of(searched(searches, budgets), budgets)
