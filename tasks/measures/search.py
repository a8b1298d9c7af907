"""What a search is worth: what it would have answered within a budget, its curves, and searches against one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Searches
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.sql import query
from tasks.domain.search.registry import BASE
from tasks.domain.statistics.curves_of_k import levels, told_of
from tasks.domain.statistics.means import by_seed, combined, folded, same_adapters
from tasks.domain.statistics.paired_tests import Family, in_families
from tasks.measures.groups import with_clusters
from tasks.measures.standard import standard_measure
from tasks.stage import stage, store

# What each search would have answered within a budget, problem by problem: what curves and contrasts of search are
# made from.

#: The ceiling: a selector that knows the gold picks among all rollouts that the budget pays for. No method can.
ORACLE = "oracle (pass@k)"
PASS_AT_1 = "pass@1"
COLUMNS = [
    "problem_id",
    "source",
    "arm",
    "adapter",
    "step",
    "seed",
    "method",
    "round",
    "operator",
    "correct",
    "cut",
    "num_prompt_tokens",
    "num_tokens",
    "num_scored_tokens",
    "chosen_correct",
]
Place = tuple[str, int, str]
#: Of a round: tokens so far, is the answer right, rollouts so far.
Spent = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Searched:
    """One policy under one method. within_SPV: is it right within each budget; area_SP: mean of that over all budgets
    up to the largest; tokens_V, rollouts_V: what it spends of each; answers_V: share of problems with a round within
    each. cluster_P: near-duplicates share it; adapter_S: names."""

    problem_P: np.ndarray
    cluster_P: np.ndarray
    within_SPV: np.ndarray
    area_SP: np.ndarray
    tokens_V: np.ndarray
    rollouts_V: np.ndarray
    answers_V: np.ndarray
    trained: bool
    adapter_S: np.ndarray

    def slope_SP(self, budgets: Sequence[int]) -> np.ndarray:
        """Share of right answers gained with every doubling of the budget, from the smallest to the largest."""
        return (self.within_SPV[:, :, -1] - self.within_SPV[:, :, 0]) / log2(budgets[-1] / budgets[0])


def late(searches: Sequence[Searched], budgets: Sequence[int]) -> str | None:
    """Said of slopes that are partly a first answer; null if every problem has a round within the smallest budget."""
    shares = [float(one.answers_V[0]) for one in searches]
    if min(shares) == 1:
        return None
    return f"{' and '.join(f'{share:.0%}' for share in shares)} of problems have a round within {budgets[0]} tokens"


def searched(refs: Sequence[Searches], budgets: Sequence[int]) -> dict[Place, Searched]:
    """(arm, step, method) → what it answers. budgets: tokens, ascending."""
    rows = pa.concat_tables([store().read(ref, COLUMNS) for ref in refs])
    return within_budgets(with_clusters(rows, refs), budgets)


def within_budgets(nodes: pa.Table, budgets: Sequence[int]) -> dict[Place, Searched]:
    """A round counts within a budget if all tokens up to its end, prompts and completions, do. Where none does there is
    no answer, which is wrong. The method that draws alone answers by its first rollout and spends no more; from all of
    them come two lines beside the methods: the oracle, and pass@1, the mean of one (`chances_of_first`). nodes:
    Searches, with the problem's cluster."""
    by_round = query(
        """
        with rounds as (
            select arm, step, coalesce(adapter, '') as adapter, method, problem_id, cluster, round,
                   sum(num_prompt_tokens + num_tokens + num_scored_tokens) as tokens,
                   count(*) filter (cut is null) as rollouts,
                   bool_or(chosen_correct) as chosen, bool_or(correct) as any_correct, avg(correct::int) as share
            from nodes group by all),
        base as (select * from rounds where split_part(method, ':', 1) = $base),
        marked as (
            select * replace (chosen::double as chosen) from rounds
            where round = 0 or split_part(method, ':', 1) <> $base
            union all by name
            select * replace ($oracle as method, max(any_correct::double) over so_far as chosen) from base
            window so_far as (partition by arm, step, adapter, problem_id order by round)
            union all by name
            select * replace ($pass_at_1 as method, share as chosen) from base)
        select arm, step, adapter, method, problem_id, cluster, chosen, tokens as own,
               sum(tokens) over so_far as tokens, sum(rollouts) over so_far as rollouts
        from marked window so_far as (partition by arm, step, adapter, method, problem_id order by round)
        order by arm, step, method, adapter, problem_id, tokens
        """,
        {"base": BASE, "oracle": ORACLE, "pass_at_1": PASS_AT_1},
        nodes=nodes,
    ).to_pylist()
    searches: dict[Place, dict[tuple[str, str, str], list[Spent]]] = {}
    for row in by_round:
        place = searches.setdefault((row["arm"], row["step"], row["method"]), {})
        problem = place.setdefault((row["adapter"], row["problem_id"], row["cluster"]), [])
        alone = row["method"] == PASS_AT_1
        tokens, rollouts = (row["own"], 1) if alone else (row["tokens"], row["rollouts"])
        problem.append((float(tokens), row["chosen"], float(rollouts)))
    names = [sorted({row[column] for row in by_round}) for column in ("problem_id", "cluster")]
    ids, clusters = ({name: number for number, name in enumerate(some)} for some in names)
    return {
        place: _laid_out(
            {(adapter, ids[p], clusters[c]): rounds for (adapter, p, c), rounds in problems.items()},
            budgets,
            one_answer_within if place[2] == PASS_AT_1 else answers_within,
        )
        for place, problems in searches.items()
    }


def _laid_out(
    problems: Mapping[tuple[str, int, int], Sequence[Spent]],
    budgets: Sequence[int],
    within: Callable[[Sequence[Spent], Sequence[int]], list[float]],
) -> Searched:
    """problems: (adapter, problem, cluster) → its rounds; numbers are those of all places."""
    adapters = sorted({adapter for adapter, _, _ in problems} - {""})
    values = [[*within(rounds, budgets), cluster] for (_, _, cluster), rounds in problems.items()]
    found = by_seed(
        np.array([problem for _, problem, _ in problems]),
        np.array([adapters.index(a) + 1 if a else 0 for a, _, _ in problems]),
        np.array(values, np.float64),
    )
    v, n = found.values_SPV, len(budgets)
    means_V = v.mean(axis=(0, 1))
    return Searched(
        problem_P=found.problem_P,
        cluster_P=v[0, :, -1],
        within_SPV=v[:, :, :n],
        area_SP=v[:, :, n],
        tokens_V=means_V[n + 1 : 2 * n + 1],
        rollouts_V=means_V[2 * n + 1 : -1],
        answers_V=(v[:, :, n + 1 : 2 * n + 1] > 0).mean(axis=(0, 1)),
        trained=found.trained,
        adapter_S=np.array(["", *adapters])[found.adapter_S],
    )


def answers_within(rounds: Sequence[Spent], budgets: Sequence[int]) -> list[float]:
    """Of one problem's rounds: right within each budget, the mean of that over every budget up to the largest, tokens
    and rollouts spent within each.

    >>> answers_within([(10, 0.0, 1), (20, 1.0, 2)], [15, 40])
    [0.0, 1.0, 0.5, 10.0, 20.0, 1.0, 2.0]
    """
    last = {b: max((r for r in rounds if r[0] <= b), default=(0.0, 0.0, 0.0)) for b in budgets}
    most = budgets[-1]
    ends = [*(min(r[0], most) for r in rounds[1:]), most]
    area = sum(right * max(end - tokens, 0) for (tokens, right, _), end in zip(rounds, ends, strict=True)) / most
    tokens, rollouts = ([float(last[b][i]) for b in budgets] for i in (0, 2))
    return [*(last[b][1] for b in budgets), area, *tokens, *rollouts]


def one_answer_within(rollouts: Sequence[Spent], budgets: Sequence[int]) -> list[float]:
    """The same where one rollout answers: the mean of them, each by its chance to have been the first.

    >>> one_answer_within([(10, 0.0, 1), (20, 1.0, 1)], [15, 40])
    [0.0, 0.5, 0.25, 5.0, 15.0, 0.5, 1.0]
    """
    each = np.array([answers_within([rollout], budgets) for rollout in rollouts])
    return (chances_of_first([tokens for tokens, _, _ in rollouts], budgets[-1]) @ each).tolist()


def chances_of_first(tokens: Sequence[float], most: int) -> np.ndarray:
    """Of each rollout that a problem drew, over the orders in which the same would have been drawn: one that others do
    not spend the budget without may have been the last. Drawing ends by what was spent, and often with a wrong rollout,
    which is long: their plain mean is too low.

    >>> chances_of_first([1000, 4000], 4000).tolist(), chances_of_first([1000, 1000], 4000).tolist()
    ([1.0, 0.0], [0.5, 0.5])
    """
    spent_N = np.asarray(tokens)
    if len(spent_N) < 2:
        return np.ones(1)
    last_N = spent_N.sum() - spent_N < most
    last_N = last_N if last_N.any() else np.ones_like(last_N)  # of a larger budget than is asked about
    return (last_N.sum() - last_N) / (last_N.sum() * (len(spent_N) - 1))


# Accuracy against tokens: what a policy's width is worth when one answer must be given.

#: Parts of the problems: the best method of each is chosen on the others.
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
    """What one answer is worth within a budget."""


def curves_of(found: dict[Place, Searched], budgets: Sequence[int]) -> pa.Table:
    """One row per metric, (arm, step), method and budget, over problems.

    metric: `accuracy` within a budget; `area`, its mean over every budget up to the largest; `slope`, what a doubling
    of the budget adds, from the smallest to the largest; `best`, accuracy of the method that was best within the budget
    on other problems. series: `method`; `line`, pass@1; `ceiling`, the oracle, which knows the golds and is no method.
    tokens, rollouts: spent within the budget, mean over problems.
    """
    rows: list[dict[str, Any]] = []
    for (arm, step, method), one in sorted(found.items()):
        series = {ORACLE: "ceiling", PASS_AT_1: "line"}.get(method, "method")
        head = {"series": series, "arm": arm, "step": step, "method": method, "n": len(one.problem_P)}
        shares_SPV = np.concatenate([one.within_SPV, one.area_SP[:, :, None]], axis=2)
        shares_SCV = folded(shares_SPV, one.cluster_P)
        told = levels(shares_SCV, one.trained)
        for place, budget in enumerate(budgets):
            spent = {"tokens": float(one.tokens_V[place]), "rollouts": float(one.rollouts_V[place])}
            rows.append(head | {"metric": "accuracy", "budget": budget} | spent | told[place])
        rows.append(head | {"metric": "area", "budget": budgets[-1]} | told[-1])
        if len(budgets) > 1:
            slope_SC1 = folded(one.slope_SP(budgets)[:, :, None], one.cluster_P)
            alike = "the budget changes nothing on any problem"
            [slope] = told_of(combined([(1.0, slope_SC1)], [one.trained]), len(one.problem_P), alike=alike)
            kept = {k: slope.get(k) for k in ("estimate", "low", "high", "clusters", "holds_for")}
            reason = slope.get("reason") or late([one], budgets)
            rows.append(head | {"metric": "slope", "budget": budgets[-1], "reason": reason} | kept)
    for arm, step in dict.fromkeys(place[:2] for place in sorted(found)):
        methods = [one for place, one in sorted(found.items()) if place[:2] == (arm, step) and place[2] not in LINES]
        rows += [{"metric": "best", "arm": arm, "step": step} | row for row in _best_elsewhere(methods, budgets)]
    return pa.Table.from_pylist(rows, schema=SearchCurves.schema)


def _best_elsewhere(methods: Sequence[Searched], budgets: Sequence[int]) -> list[dict[str, Any]]:
    """Accuracy within each budget of the method that is best on the problems of the other folds, whose near-duplicates
    are in one: that of the best on these very problems is too high, by what luck had in its choice."""
    problem_P = methods[0].problem_P
    for one in methods[1:]:
        problem_P = np.intersect1d(problem_P, one.problem_P)
    if not len(problem_P):
        return []
    within_MSPV = np.stack([one.within_SPV[:, np.searchsorted(one.problem_P, problem_P)] for one in methods])
    cluster_P = methods[0].cluster_P[np.searchsorted(methods[0].problem_P, problem_P)]
    fold_P = np.unique(cluster_P, return_inverse=True)[1] % FOLDS
    crossed_SPV = np.empty_like(within_MSPV[0])
    for fold in np.unique(fold_P):
        others_P = (fold_P != fold) if (fold_P != fold).any() else np.ones_like(fold_P, bool)
        best_V = within_MSPV[:, :, others_P].mean(axis=(1, 2)).argmax(axis=0)
        for place, best in enumerate(best_V):
            crossed_SPV[:, fold_P == fold, place] = within_MSPV[best, :, fold_P == fold, place].T
    told = levels(folded(crossed_SPV, cluster_P), methods[0].trained)
    about = {"n": len(problem_P), "clusters": None}  # not a column of this metric
    return [row | about | {"budget": budget} for budget, row in zip(budgets, told, strict=True)]


@standard_measure("search_curves", needs=("searches",))
@stage(SearchCurves, version=6)
def measure_search(*, searches: tuple[Searches, ...], budgets: tuple[int, ...]) -> pa.Table:
    """Accuracy, area and slope of every policy under every method."""
    return curves_of(searched(searches, budgets), budgets)


# Methods against one another, and arms against one another, at equal tokens.


class SearchContrasts(
    Ref,
    kind="search_contrasts",
    schema=nullable(
        "metric str, budget big, arm str, step int, method str, other str, other_step int, other_method str",
        "estimate real, low real, high real, p_value real, p_adjusted real, family str, detectable real, n big",
        "clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Paired differences between searches."""


def contrasts_of(found: dict[Place, Searched], budgets: Sequence[int]) -> pa.Table:
    """Paired by problem, and by seed where both are the same adapters: every two methods of one
    policy, and every two policies under one method, that of the oracle too. metric: `accuracy` within each budget,
    `area` and `slope` (SearchCurves; one rollout has none). p_adjusted:
    Benjamini and Hochberg over methods of one policy, over policies, and over slopes of policies, which ask whether
    width pays at test time."""
    rows: list[dict[str, Any]] = []
    for one, other in combinations(sorted(found), 2):
        within, between = one[:2] == other[:2], one[2] == other[2]
        if not (within or between) or (within and {one[2], other[2]} & {ORACLE, PASS_AT_1}):
            continue
        head = dict(zip(("arm", "step", "method", "other", "other_step", "other_method"), (*one, *other), strict=True))
        told = _differences(found[one], found[other], budgets)
        no_slope = between and one[2].partition(":")[0] in (BASE, PASS_AT_1)
        rows += [head | row for row in told if not (no_slope and row["metric"] == "slope")]
    return pa.Table.from_pylist(in_families(rows, _family), schema=SearchContrasts.schema)


def _family(row: dict[str, Any]) -> Family:
    if row["method"] != row["other_method"]:
        return "methods of one policy", "bh"
    return ("slopes of two policies" if row["metric"] == "slope" else "policies under one method"), "bh"


def _differences(one: Searched, other: Searched, budgets: Sequence[int]) -> list[dict[str, Any]]:
    _, at, at_other = np.intersect1d(one.problem_P, other.problem_P, return_indices=True)
    if not len(at):
        return [{"metric": "area", "budget": budgets[-1], "n": 0, "reason": "no problem in common"}]
    cluster_C = one.cluster_P[at]

    def means(first_SPV: np.ndarray, second_SPV: np.ndarray, reach: float | None) -> list[dict[str, Any]]:
        pair = [folded(v, cluster_C) for v in (first_SPV[:, at], second_SPV[:, at_other])]
        found = combined(
            list(zip((1.0, -1.0), pair, strict=True)),
            [one.trained, other.trained],
            reach=reach,
            shares=reach is not None,
            paired=same_adapters([one.adapter_S, other.adapter_S]),
        )
        return told_of(found, len(at), alike="alike on every problem")

    told = means(*(np.concatenate([s.within_SPV, s.area_SP[:, :, None]], axis=2) for s in (one, other)), reach=1.0)
    metrics = [*(("accuracy", budget) for budget in budgets), ("area", budgets[-1])]
    if len(budgets) > 1:
        [slope] = means(*(s.slope_SP(budgets)[:, :, None] for s in (one, other)), reach=None)
        told.append({"reason": late([one, other], budgets)} | slope)
        metrics.append(("slope", budgets[-1]))
    return [{"metric": m, "budget": b} | row for (m, b), row in zip(metrics, told, strict=True)]


@standard_measure("search_contrasts", needs=("searches",))
@stage(SearchContrasts, version=7)
def contrast_search(*, searches: tuple[Searches, ...], budgets: tuple[int, ...]) -> pa.Table:
    """Methods and policies in pairs."""
    return contrasts_of(searched(searches, budgets), budgets)
