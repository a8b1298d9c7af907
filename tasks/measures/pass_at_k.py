"""pass@k: the chance that at least one of k rollouts is right, per policy and source, and how gaps close with k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pyarrow as pa

from storage.artifacts.kinds import Asymptotes, Groups, PassAtK, PassAtKContrasts, Rollouts
from storage.sql import query
from tasks.domain.statistics.contrasts_of_k import beyond_a_shift, contrast_at_cost, contrast_curves
from tasks.domain.statistics.curves_of_k import doublings
from tasks.domain.statistics.families import in_families
from tasks.measures.grouping import read_groups
from tasks.measures.slicing import counts_of
from tasks.measures.standard import standard_measure
from tasks.stage import stage


def passk_of(groups: pa.Table, ks: Sequence[int], draws: int, seed: int) -> pa.Table:
    """One row per metric, (arm, step), source and k; intervals over problems and, for what was trained, seeds.

    metric: `pass@k` (at least one of k) and `pass^k` (all k). n: problems; rollouts: fewest of a problem; policies:
    seeds averaged by problem; tokens: mean tokens that k rollouts cost, for comparing at an equal budget.
    Null with the reason where a problem has fewer than k rollouts.
    """
    rows, counts = [], counts_of(groups)
    for arm, step, source in counts.places:
        one = counts.curve(arm, step, source, ks)
        for row in one.rows(ks, draws, seed):
            rows.append(row | {"arm": arm, "step": step, "source": source})
    return pa.Table.from_pylist(rows, schema=PassAtK.schema)


def contrasts_of(groups: pa.Table, ks: Sequence[int], draws: int, seed: int) -> pa.Table:
    """Every two (arm, step) on their common problems, per source.

    metric: `gap` (first minus second at k), `equal_tokens` (first at k minus second at the k that costs as much; the
    reason says which), `closure` (|gap| at the smallest k minus |gap| at the largest: one
    contrast, one test), `closure_of_failures` and `closure_of_logits` (the same on those scales), `closure_of_shift`
    (what a constant shift of logits would close) and `closure_beyond_shift` (what is left; over all sources),
    `monotone` (share of bootstrap draws in which every step of k narrows the gap).
    p_adjusted: Benjamini-Hochberg over the table; detectable: the difference found with 80 % power.
    """
    counts = counts_of(groups)
    curves = {key: counts.curve(*key, ks) for key in counts.places}
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
            if source == "all":
                rows += [about | row for row in beyond_a_shift(a, b, ks, seed)]
            a, b = (counts.curve(*p, source, range(1, c.rollouts + 1)) for p, c in ((first, a), (second, b)))
            rows += [about | row for row in contrast_at_cost(a, b, ks)]
    return pa.Table.from_pylist(
        in_families(rows, lambda row: ("pass@k between policies", "bh")), schema=PassAtKContrasts.schema
    )


def asymptotes_of(groups: pa.Table) -> pa.Table:
    """pass@k of every (arm, step) and source at k = 1, 2, 4, … and at the number of rollouts that each problem has.

    doubling: what k has that the k before it had not, with its interval: near 0 at the end of a curve that has
    reached its asymptote. unsolved: problems without a correct rollout, stated at the largest k; unsolved_below: the
    chance of a correct rollout that such a problem may still have (upper end of a one-sided 95 % interval).
    """
    rows, counts = [], counts_of(groups)
    for arm, step, source in counts.places:
        one = counts.curve(arm, step, source, [1])
        ks = [*(2**i for i in range(one.rollouts.bit_length()) if 2**i < one.rollouts), one.rollouts]
        one = counts.curve(arm, step, source, ks)
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
        rows += [about | row | (end if row["k"] == one.rollouts else {}) for row in doublings(one, ks)]
    return pa.Table.from_pylist(rows, schema=Asymptotes.schema)


@stage(PassAtK, version=9)
def estimate_pass_at_k(
    *, rollouts: tuple[Rollouts | Groups, ...], ks: tuple[int, ...], draws: int = 10_000, seed: int = 0
) -> pa.Table:
    """pass@k and pass^k of every (arm, step), per source and for all of them."""
    return passk_of(read_groups(rollouts), ks, draws, seed)


@stage(PassAtKContrasts, version=15)
def contrast_pass_at_k(
    *, rollouts: tuple[Rollouts | Groups, ...], ks: tuple[int, ...], draws: int = 10_000, seed: int = 0
) -> pa.Table:
    """Gaps between every two (arm, step), and whether they close as k grows."""
    return contrasts_of(read_groups(rollouts), ks, draws, seed)


@standard_measure("asymptotes", needs=("deep",), rollouts="deep")
@stage(Asymptotes, version=8)
def follow_to_the_end(*, rollouts: tuple[Rollouts | Groups, ...]) -> pa.Table:
    """pass@k of every (arm, step) by doubling k up to all of its rollouts."""
    return asymptotes_of(read_groups(rollouts))
