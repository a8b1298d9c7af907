"""pass@k: the chance that at least one of k rollouts is right, per policy and source, and how gaps close with k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.domain.statistics.curves_of_k import KCurve, contrast_curves, doublings, k_curve
from tasks.measures.grouping import read_groups
from tasks.stage import Ref, stage

PASSK = pa.schema(
    [
        ("metric", pa.string()),
        ("arm", pa.string()),
        ("step", pa.int32()),
        ("source", pa.string()),
        ("k", pa.int32()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("low_simultaneous", pa.float64()),
        ("high_simultaneous", pa.float64()),
        ("n", pa.int64()),
        ("rollouts", pa.int32()),
        ("policies", pa.int32()),
        ("tokens", pa.float64()),
        ("reason", pa.string()),
    ]
)
CONTRASTS = pa.schema(
    [
        ("metric", pa.string()),
        ("arm", pa.string()),
        ("step", pa.int32()),
        ("other", pa.string()),
        ("other_step", pa.int32()),
        ("source", pa.string()),
        ("k", pa.int32()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_value", pa.float64()),
        ("n", pa.int64()),
        ("reason", pa.string()),
    ]
)
ASYMPTOTES = pa.schema(
    [
        ("arm", pa.string()),
        ("step", pa.int32()),
        ("source", pa.string()),
        ("k", pa.int32()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("doubling", pa.float64()),
        ("doubling_low", pa.float64()),
        ("doubling_high", pa.float64()),
        ("unsolved", pa.int64()),
        ("unsolved_below", pa.float64()),
        ("n", pa.int64()),
        ("rollouts", pa.int32()),
        ("policies", pa.int32()),
    ]
)


def slices(groups: pa.Table) -> list[tuple[str, int, str]]:
    """(arm, step, source) of every curve, `all` sources first."""
    found = query(
        """
        select distinct arm, step, source from groups union select distinct arm, step, 'all' from groups
        order by arm, step, source <> 'all', source
        """,
        groups=groups,
    )
    return [(r["arm"], r["step"], r["source"]) for r in found.to_pylist()]


Columns = dict[str, np.ndarray]


def in_columns(groups: pa.Table) -> Columns:
    """Groups as arrays, sorted by problem and policy, so that a slice of them is a mask."""
    ordered = query(
        """
        select arm, step, source, problem_id, adapter || '/' || seed as policy, group_size, num_correct, num_tokens
        from groups order by problem_id, policy
        """,
        groups=groups,
    )
    return {name: ordered[name].to_numpy() for name in ordered.column_names}


def curve(columns: Columns, arm: str, step: int, source: str, ks: Sequence[int]) -> KCurve:
    mine = (columns["arm"] == arm) & (columns["step"] == step)
    if source != "all":
        mine &= columns["source"] == source
    names = ("problem_id", "policy", "group_size", "num_correct", "num_tokens")
    problem, policy, size, correct, tokens = (columns[name][mine] for name in names)
    return k_curve(problem, policy, size, correct, tokens, ks)


def passk_of(groups: pa.Table, ks: Sequence[int], draws: int, seed: int) -> pa.Table:
    """One row per metric, (arm, step), source and k; intervals from a bootstrap over problems.

    metric: `pass@k` (at least one of k) and `pass^k` (all k). n: problems; rollouts: fewest of a problem; policies:
    seeds averaged by problem; tokens: mean tokens that k rollouts cost, for comparing at an equal budget.
    Null with the reason where a problem has fewer than k rollouts.
    """
    rows, columns = [], in_columns(groups)
    for arm, step, source in slices(groups):
        one = curve(columns, arm, step, source, ks)
        for row in one.rows(ks, draws, seed):
            rows.append(row | {"arm": arm, "step": step, "source": source})
    return pa.Table.from_pylist(rows, schema=PASSK)


def contrasts_of(groups: pa.Table, ks: Sequence[int], draws: int, seed: int) -> pa.Table:
    """Every two (arm, step) on their common problems, per source.

    metric: `gap` (first minus second at k), `equal_tokens` (first at k minus second at the k that costs as much; the
    reason says which), `closure` (|gap| at the smallest k minus |gap| at the largest: one
    contrast, one test), `monotone` (share of bootstrap draws in which every step of k narrows the gap).
    """
    columns = in_columns(groups)
    curves = {key: curve(columns, *key, ks) for key in slices(groups)}
    policies = list(dict.fromkeys((arm, step) for arm, step, _ in curves))
    rows = []
    for first, second in combinations(policies, 2):
        for source in dict.fromkeys(s for arm, step, s in curves if (arm, step) in (first, second)):
            about = {"arm": first[0], "step": first[1], "other": second[0], "other_step": second[1], "source": source}
            lacking = [arm for arm, step in (first, second) if (arm, step, source) not in curves]
            if lacking:
                rows.append(about | {"metric": "gap", "n": 0, "reason": f"{lacking[0]} has no problem of {source}"})
                continue
            a, b = curves[(*first, source)], curves[(*second, source)]
            rows += [about | row for row in contrast_curves(a, b, ks, draws, seed)]
            rows += [
                about | row for row in _at_equal_tokens(columns, (*first, source), (*second, source), ks, draws, seed)
            ]
    return pa.Table.from_pylist(rows, schema=CONTRASTS)


def _at_equal_tokens(
    columns: Columns,
    first: tuple[str, int, str],
    second: tuple[str, int, str],
    ks: Sequence[int],
    draws: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Gaps at the budgets of k rollouts of the dearer policy, as far as the cheaper one has rollouts for them. Nothing
    where lengths are not known."""
    a, b = (curve(columns, *key, [1]) for key in (first, second))
    cost, other_cost = a.tokens_per_rollout, b.tokens_per_rollout
    if not cost or not other_cost:
        return []
    paired = [(k, int(k * cost // other_cost)) if cost >= other_cost else (int(k * other_cost // cost), k) for k in ks]
    paired = [(k, other_k) for k, other_k in paired if k <= a.rollouts and other_k <= b.rollouts]
    a, b = (curve(columns, *key, [pair[i] for pair in paired]) for i, key in enumerate((first, second)))
    gaps = [r for r in contrast_curves(a, b, [k for k, _ in paired], draws, seed) if r["metric"] == "gap"]
    if not paired or not gaps[0]["n"]:
        return []
    said = [f"{max(k * cost, o * other_cost):,.0f} tokens; other at k = {o}" for k, o in paired]
    return [row | {"metric": "equal_tokens", "reason": why} for row, why in zip(gaps, said, strict=True)]


def asymptotes_of(groups: pa.Table, draws: int, seed: int) -> pa.Table:
    """pass@k of every (arm, step) and source at k = 1, 2, 4, … and at the number of rollouts that each problem has.

    doubling: what k has that the k before it had not, with its interval: near 0 at the end of a curve that has
    reached its asymptote. unsolved: problems without a correct rollout, stated at the largest k; unsolved_below: the
    chance of a correct rollout that such a problem may still have (upper end of a one-sided 95 % interval).
    """
    rows, columns = [], in_columns(groups)
    for arm, step, source in slices(groups):
        one = curve(columns, arm, step, source, [1])
        ks = [*(2**i for i in range(one.rollouts.bit_length()) if 2**i < one.rollouts), one.rollouts]
        one = curve(columns, arm, step, source, ks)
        about = {
            "arm": arm,
            "step": step,
            "source": source,
            "n": len(one.problem_P),
            "rollouts": one.rollouts,
            "policies": one.policies,
        }
        unsolved = query(
            """
            select sum(group_size)::bigint as drawn from groups
            where arm = $arm and step = $step and ($source = 'all' or source = $source)
            group by problem_id having sum(num_correct) = 0
            """,
            {"arm": arm, "step": step, "source": source},
            groups=groups,
        )["drawn"].to_pylist()
        end = {"unsolved": len(unsolved), "unsolved_below": 1 - 0.05 ** (1 / min(unsolved)) if unsolved else None}
        rows += [about | row | (end if row["k"] == one.rollouts else {}) for row in doublings(one, ks, draws, seed)]
    return pa.Table.from_pylist(rows, schema=ASYMPTOTES)


@stage("passk", version=1)
def estimate_pass_at_k(rollouts: tuple[Ref, ...], ks: tuple[int, ...], draws: int = 10_000, seed: int = 0) -> pa.Table:
    """pass@k and pass^k of every (arm, step), per source and for all of them."""
    return passk_of(read_groups(rollouts), ks, draws, seed)


@stage("passk_contrasts", version=4)
def contrast_pass_at_k(rollouts: tuple[Ref, ...], ks: tuple[int, ...], draws: int = 10_000, seed: int = 0) -> pa.Table:
    """Gaps between every two (arm, step), and whether they close as k grows."""
    return contrasts_of(read_groups(rollouts), ks, draws, seed)


@stage("asymptotes", version=1)
def follow_to_the_end(rollouts: tuple[Ref, ...], draws: int = 10_000, seed: int = 0) -> pa.Table:
    """pass@k of every (arm, step) by doubling k up to all of its rollouts."""
    return asymptotes_of(read_groups(rollouts), draws, seed)
