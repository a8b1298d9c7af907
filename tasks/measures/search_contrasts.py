"""Methods against one another, and arms against one another, at equal tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Searches
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from tasks.domain.search.registry import BASE
from tasks.domain.statistics.contrasts_of_k import told_of
from tasks.domain.statistics.families import Family, in_families
from tasks.domain.statistics.means import combined, folded
from tasks.domain.statistics.seeded import same_adapters
from tasks.measures.search_values import ORACLE, PASS_AT_1, Place, Searched, late, searched
from tasks.measures.standard import standard_measure
from tasks.stage import stage


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
