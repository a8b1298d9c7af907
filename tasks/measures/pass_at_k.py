"""pass@k, the chance that at least one of k rollouts is correct, per policy and source; gaps of pass@k; and maj@k and
best-of-k, which choose one answer from k rollouts."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import ceil

import numpy as np
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import (
    Asymptotes,
    Groups,
    Partitions,
    PassAtK,
    PassAtKContrasts,
    Rollouts,
    SolvedBy,
    Votes,
)
from storage.sql import query
from tasks.domain.statistics.curves_of_k import beyond_a_shift, contrast_at_cost, contrast_curves, doublings, k_curve
from tasks.domain.statistics.estimators import best_chance, g_pass_at_k, majority_chance, subsets
from tasks.domain.statistics.paired_tests import in_families
from tasks.evidence import standard_measure
from tasks.measures.groups import OF_ROLLOUT, Row, counts_of, estimates, in_classes, read_groups
from tasks.stage import stage


def passk_of(groups: pa.Table, ks: Sequence[int], draws: int, seed: int) -> pa.Table:
    """Return one row per metric, (arm, step), source and k. Intervals are over problems and, if trained, seeds.

    metric: `pass@k` (at least one of k correct) and `pass^k` (all k correct). n: problems. rollouts: fewest of a
    problem. policies: seeds averaged per problem. tokens: mean tokens of k rollouts, for comparisons at equal cost. The
    estimate is None, with a reason, if a problem has fewer than k rollouts.
    """
    rows = counts_of(groups).rows(lambda of: k_curve(of, ks).rows(ks, draws, seed))
    return pa.Table.from_pylist(rows, schema=PassAtK.schema)


def contrasts_of(groups: pa.Table, ks: Sequence[int], draws: int, seed: int) -> pa.Table:
    """Compare every two (arm, step) on their common problems, per source. Metrics:
    - `gap`: pass@k of the first minus pass@k of the second.
    - `equal_tokens`: the same difference, where the second has the k that costs as many tokens (given in `reason`).
    - `closure`: |gap| at the smallest k minus |gap| at the largest. `closure_of_failures`, `closure_of_logits`: closure
      of log failure rates and of logits. `closure_of_shift`: the closure that a constant shift of logits would give.
      `closure_beyond_shift`: the rest of the closure (over all sources).
    - `monotone`: share of bootstrap draws in which every step of k narrows the gap.

    p_adjusted: Benjamini-Hochberg over the table. detectable: the difference that is detected with 80 % power.
    """
    counts = counts_of(groups)
    curves = {key: k_curve(counts.at(key), ks) for key in counts.places}
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
            a, b = (k_curve(counts.at((*p, source)), range(1, c.rollouts + 1)) for p, c in ((first, a), (second, b)))
            rows += [about | row for row in contrast_at_cost(a, b, ks)]
    return pa.Table.from_pylist(
        in_families(rows, lambda row: ("pass@k between policies", "bh")), schema=PassAtKContrasts.schema
    )


def asymptotes_of(groups: pa.Table) -> pa.Table:
    """Return pass@k of every (arm, step) and source at k = 1, 2, 4, … up to the number of rollouts per problem.

    doubling: increase over the previous k, with its interval; near 0 if the curve has reached its asymptote. unsolved:
    number of problems without a correct rollout, in the row of the largest k. unsolved_below: upper bound of such a
    problem's success rate (one-sided 95 % interval).
    """

    def of_slice(of: Mapping[str, np.ndarray]) -> list[Row]:
        most = int(of["group_size"].min())
        ks = [*(2**i for i in range(most.bit_length()) if 2**i < most), most]
        one = k_curve(of, ks)
        about = {"n": one.n, "rollouts": most, "policies": one.policies}
        size_P, solved_P = (np.bincount(of["problem"], weights=of[name]) for name in ("group_size", "num_correct"))
        unsolved_P = size_P[(size_P > 0) & (solved_P == 0)]
        end = {"unsolved": len(unsolved_P)}
        end |= {"unsolved_below": 1 - 0.05 ** (1 / unsolved_P.min())} if len(unsolved_P) else {}
        return [about | row | (end if row["k"] == most else {}) for row in doublings(one, ks)]

    return pa.Table.from_pylist(counts_of(groups).rows(of_slice), schema=Asymptotes.schema)


@stage(PassAtK, version=9)
def estimate_pass_at_k(
    *, rollouts: tuple[Rollouts | Groups, ...], ks: tuple[int, ...], draws: int = 10_000, seed: int = 0
) -> pa.Table:
    """Return pass@k and pass^k of every (arm, step), per source and overall."""
    return passk_of(read_groups(rollouts), ks, draws, seed)


@stage(PassAtKContrasts, version=15)
def contrast_pass_at_k(
    *, rollouts: tuple[Rollouts | Groups, ...], ks: tuple[int, ...], draws: int = 10_000, seed: int = 0
) -> pa.Table:
    """Return the gaps of pass@k between every two (arm, step), and tests of whether the gaps close as k grows."""
    return contrasts_of(read_groups(rollouts), ks, draws, seed)


@standard_measure("asymptotes", needs=("deep",), rollouts="deep")
@stage(Asymptotes, version=8)
def follow_to_the_end(*, rollouts: tuple[Rollouts | Groups, ...]) -> pa.Table:
    """Return pass@k of every (arm, step), with k doubling up to the number of rollouts."""
    return asymptotes_of(read_groups(rollouts))


# ---- G-Pass@k, the chance that at least a given share of k rollouts is correct: between pass@k (one) and pass^k (all)

THRESHOLDS = (0.25, 0.5, 0.75, 1.0)


class GPass(
    Ref,
    kind="g_pass",
    schema=nullable(
        "metric str, arm str, step int, source str, k int, threshold real, wanted int, estimate real, low real",
        "high real, n big, clusters big, rollouts int, seeds int, holds_for str, reason str",
    ),
):
    """G-Pass@k per policy, source and threshold."""


def g_pass_of(groups: pa.Table, ks: Sequence[int]) -> pa.Table:
    """Return one row per (arm, step), source, k ≥ 3 and threshold τ. Intervals are over problems and trained seeds.

    metric: `G-Pass@k`: at least `wanted` = ⌈τ·k⌉ of k rollouts are correct; not given where it equals pass@k (1 wanted)
    or pass^k (all). `mG-Pass@k`: its mean over the thresholds i/k above a half; for even k this is the published 2/k ·
    Σ_{i > k/2}. The estimate is None, with a reason, if a problem has fewer than k rollouts.
    """
    size_N, correct_N = (groups[name].to_numpy() for name in ("group_size", "num_correct"))
    heads: dict[str, Row] = {}
    for k in (k for k in ks if k > 2):
        tails_NK = g_pass_at_k(size_N, correct_N, k)
        about: Row = {"k": k, "why": f"a problem has fewer than k = {k} rollouts"}
        for t in THRESHOLDS:
            if 1 < (wanted := ceil(t * k)) < k:
                groups = groups.append_column(f"{k} {t}", pa.array(tails_NK[:, wanted - 1]))
                heads[f"{k} {t}"] = about | {"metric": "G-Pass@k", "threshold": t, "wanted": wanted}
        groups = groups.append_column(f"{k} mean", pa.array(tails_NK[:, k // 2 :].mean(axis=1)))
        heads[f"{k} mean"] = about | {"metric": "mG-Pass@k"}

    def of_slice(of: Mapping[str, np.ndarray]) -> list[Row]:
        return [row | {"rollouts": int(of["group_size"].min())} for row in estimates(of, heads)]

    return pa.Table.from_pylist(counts_of(groups).rows(of_slice), schema=GPass.schema)


@standard_measure("g_pass", rollouts="final")
@stage(GPass, version=8)
def measure_g_pass(*, rollouts: tuple[Rollouts | Groups, ...], ks: tuple[int, ...]) -> pa.Table:
    """Return G-Pass@k and mG-Pass@k of every (arm, step), per source and overall."""
    return g_pass_of(read_groups(rollouts), ks)


# ---- problems that are solved under one policy only, under both, or under neither


def solved_by_of(groups: pa.Table) -> pa.Table:
    """Return one row per problem and pair of policies.

    solved_by: `both`, `arm_only`, `other_only`, `neither`, over all rollouts, as published. equal_n: whether both
    policies have equally many rollouts, which makes this fair. chance_of_arm, chance_of_other: pass@k at the smaller
    number of rollouts. Two policies without a common problem have one row of nulls, with a reason.
    """
    return query(
        """
        with policies as (
            select arm, step, problem_id, any_value(source) as source, sum(num_correct)::bigint as num_correct,
                   sum(group_size)::bigint as group_size
            from groups group by arm, step, problem_id),
        paired as (
            select a.problem_id, a.source, a.arm, a.step, b.arm as other, b.step as other_step, a.num_correct,
                   a.group_size, b.num_correct as other_correct, b.group_size as other_group_size,
                   least(a.group_size, b.group_size) as k
            from policies a join policies b using (problem_id) where (a.arm, a.step) < (b.arm, b.step)),
        measured as (select distinct arm, step from policies),
        strangers as (
            select a.arm, a.step, b.arm as other, b.step as other_step
            from measured a join measured b on (a.arm, a.step) < (b.arm, b.step)
            except select arm, step, other, other_step from paired),
        judged as (select * exclude (k),
               case when num_correct > 0 and other_correct > 0 then 'both' when num_correct > 0 then 'arm_only'
                    when other_correct > 0 then 'other_only' else 'neither' end as solved_by,
               group_size = other_group_size as equal_n,
               pass_at_k(group_size, num_correct, k) as chance_of_arm,
               pass_at_k(other_group_size, other_correct, k) as chance_of_other
            from paired)
        from judged union all by name select *, 'no problem in common' as reason from strangers
        order by arm, step, other, other_step, source, problem_id
        """,
        groups=groups,
    ).cast(SolvedBy.schema)


@standard_measure("solved_by", rollouts="final")
@stage(SolvedBy, version=3)
def compare_solved(*, rollouts: tuple[Rollouts | Groups, ...]) -> pa.Table:
    """Return, for every two policies, which of them solved each problem."""
    return solved_by_of(read_groups(rollouts))


# ---- majority voting and selection: maj@k and best-of-k, from the rollouts that pass@k uses

VOTE_COLUMNS = [*OF_ROLLOUT, "num_tokens", "logprob_sum"]
#: If a group has more k-subsets than this, as many random ones are used.
MAX_SUBSETS = 500
#: Metric → why it may be missing.
VOTE_METRICS = {
    "likeliest@k": "a problem has fewer than k = {} rollouts, or one without a log-probability",
    "maj@k": "a problem has fewer than k = {} rollouts",
    "shortest@k": "a problem has fewer than k = {} rollouts",
}


def votes_of(parts: Iterable[pa.Table], ks: Sequence[int], seed: int) -> pa.Table:
    """Return one row per metric, (arm, step), source and k, over problems.

    metric: `maj@k`: the most frequent `answer_class` of k rollouts is correct (ties share the vote; no answer, no
    vote). `shortest@k`: the shortest of k rollouts with an answer is correct. `likeliest@k`: the rollout with the
    highest mean log-probability per token is correct. Values are averaged over the k-subsets of a group, or over
    MAX_SUBSETS random ones (the same for all groups of one size). A value is None, with a reason, if a group has fewer
    than k rollouts or lacks a log-probability. pass@k is their upper bound. parts: rollouts of whole groups; an
    optional column `cluster` marks near-duplicates.
    """
    voted = pa.concat_tables([_voted(part, ks, seed) for part in parts])
    heads = {
        f"{metric} {k}": {"metric": metric, "k": k, "why": why.format(k)}
        for metric, why in VOTE_METRICS.items()
        for k in ks
    }
    return pa.Table.from_pylist(counts_of(voted).rows(lambda of: estimates(of, heads)), schema=Votes.schema)


def _voted(rollouts: pa.Table, ks: Sequence[int], seed: int) -> pa.Table:
    """Return one row per group: for each metric and k the chance that the chosen answer is correct, or null."""
    cluster = "any_value(coalesce(cluster, problem_id))" if "cluster" in rollouts.column_names else "problem_id"
    groups = query(
        f"""
        select arm, step, source, problem_id, coalesce(adapter, '') as adapter, seed, {cluster} as cluster,
               list(answer_class order by rollout) as answers, list(correct order by rollout) as correct,
               list(-num_tokens::double order by rollout) as shortness,
               list(coalesce(logprob_sum, 'nan') / greatest(num_tokens, 1) order by rollout) as likelihood
        from rollouts group by all
        """,
        rollouts=rollouts,
    )
    values: dict[str, list[float | None]] = {f"{metric} {k}": [] for metric in VOTE_METRICS for k in ks}
    for group in groups.to_pylist():
        given = group["answers"], group["correct"]
        likely = np.isfinite(group["likelihood"]).all()
        for k in ks:
            chosen_SK = subsets(len(group["answers"]), k, MAX_SUBSETS, seed)
            enough = len(chosen_SK) > 0
            values[f"maj@k {k}"].append(majority_chance(*given, chosen_SK) if enough else None)
            values[f"shortest@k {k}"].append(best_chance(*given, group["shortness"], chosen_SK) if enough else None)
            values[f"likeliest@k {k}"].append(
                best_chance(*given, group["likelihood"], chosen_SK) if enough and likely else None
            )
    kept = groups.drop(["answers", "correct", "shortness", "likelihood"])
    for name, column in values.items():
        kept = kept.append_column(name, pa.array(column, pa.float64()))
    return kept


@standard_measure("votes", rollouts="final")
@stage(Votes, version=12)
def measure_votes(
    *, rollouts: tuple[Rollouts, ...], partitions: tuple[Partitions, ...], ks: tuple[int, ...], seed: int = 0
) -> pa.Table:
    """Return maj@k and best-of-k of every (arm, step), per source and overall. partitions: one per artifact."""
    pairs = zip(rollouts, partitions, strict=True)
    return votes_of((part for refs in pairs for part in in_classes(*refs, VOTE_COLUMNS)), ks, seed)
