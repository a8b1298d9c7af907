"""Accuracy against tokens: what a policy's width is worth when one answer must be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Searches
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from tasks.domain.statistics.contrasts_of_k import told_of
from tasks.domain.statistics.curves_of_k import levels
from tasks.domain.statistics.means import combined, folded
from tasks.measures.search_values import ORACLE, PASS_AT_1, Place, Searched, late, searched
from tasks.measures.standard import standard_measure
from tasks.stage import stage

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
        told = [row | {"clusters": shares_SCV.shape[1]} for row in levels(shares_SCV, one.trained)]
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
    return [{"budget": budget, "n": len(problem_P)} | row for budget, row in zip(budgets, told, strict=True)]


@standard_measure("search_curves", needs=("searches",))
@stage(SearchCurves, version=6)
def measure_search(*, searches: tuple[Searches, ...], budgets: tuple[int, ...]) -> pa.Table:
    """Accuracy, area and slope of every policy under every method."""
    return curves_of(searched(searches, budgets), budgets)
