"""Bands: which problems of an arm give a group-relative gradient, and how two arms' bands overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import BandCrosstab, Bands, JointBands, Rollouts
from storage.errors import UserError
from storage.rules import Band
from storage.sql import query
from tasks.domain.statistics.difficulty import adaptive_saving, expectations
from tasks.domain.statistics.means import ONE_PROBLEM, folded, ratio, repeated
from tasks.domain.statistics.paired_tests import LIVE, band_tests, in_families
from tasks.domain.statistics.shares import proportions, wilson
from tasks.measures.groups import COLUMNS, FORM_COLUMNS, count_groups, form_of, in_words, with_clusters
from tasks.stage import progress, stage, store


def bands_of(rollouts: pa.Table) -> pa.Table:
    """Schema: Bands. One row per problem of one policy's screening; a group of one rollout has no variance band.

    Errors: UserError if the rollouts belong to several policies.
    """
    groups = count_groups(rollouts)
    policies = query("select count(distinct (arm, step, adapter, seed)) as n from groups", groups=groups)["n"][
        0
    ].as_py()
    if policies > 1:
        raise UserError(f"bands are one policy's, but these rollouts belong to {policies}: give one arm's screening")
    return query(
        """
        select problem_id, source, arm, group_size, num_correct,
               band(num_correct, group_size) as band
        from groups order by source, problem_id
        """,
        groups=groups,
    ).cast(Bands.schema)


def crosstab_of(bands: pa.Table, train_group_size: int) -> pa.Table:
    """Long table of what several arms' bands say together, one number a row.

    Columns: metric, arm, other, source (`all`: the whole pool), band, other_band, count, estimate with low and high
    (over problems), p_value with its correction over all of them, n, reason. Metrics: `count` (problems by band),
    `cell` (two arms' cross-tab on common problems), `ratio` (variance bands of arm over other, near-duplicates as
    one), `shared`/`only`, `mcnemar` (variance band or not), `stuart_maxwell`,
    `expected_live` (share of groups with both outcomes at the training group size), `mislabelled` (share of all_zero
    and all_one problems that are expected to be live all the same), `beta_a`, `beta_b`, `beta_zero` (the fit behind
    both; the last is the share that nothing solves), `adaptive_saving` (rollouts not needed if a problem were left once
    a correct and a wrong rollout were seen).
    """
    rows = _counts(bands)
    arms = sorted(set(bands["arm"].to_pylist()))
    sources = ["all", *sorted(set(bands["source"].to_pylist()))]
    for arm in arms:
        for source in sources:
            part = query(
                f"select group_size, num_correct, {_cluster(bands)} as cluster from bands"
                " where arm = $arm and ($source = 'all' or source = $source)",
                {"arm": arm, "source": source},
                bands=bands,
            )
            counts = list(zip(part["group_size"].to_pylist(), part["num_correct"].to_pylist(), strict=True))
            alike = repeated(np.array(part["cluster"].to_pylist())) if counts else 1.0
            said = [*expectations(counts, train_group_size, alike), adaptive_saving(counts)]
            rows += [{"arm": arm, "source": source} | row for row in said]
    for arm, other in combinations(arms, 2):
        rows += _pair(bands, arm, other)
    return pa.Table.from_pylist(in_families(rows, lambda _: ("bands between arms", "bh")), schema=BandCrosstab.schema)


def _counts(bands: pa.Table) -> list[dict[str, Any]]:
    """Problems by arm, source and band; a band without a problem is a row with 0."""
    rows = query(
        """
        with sources as (select distinct source from bands union all select 'all'),
             arms as (select distinct arm from bands),
             names as (select unnest(bands()) as band),
             tall as (select arm, source, band from bands union all select arm, 'all', band from bands)
        select 'count' as metric, arm, source, band, count(tall.band) as count,
               count(tall.band) / nullif(sum(count(tall.band)) over (partition by arm, source), 0) as estimate,
               sum(count(tall.band)) over (partition by arm, source)::bigint as n,
               if(n = 0, arm || ' has no problem of ' || source, null) as reason
        from arms cross join sources cross join names left join tall using (arm, source, band)
        group by arm, source, band
        order by arm, source <> 'all', source, list_position(bands(), band)
        """,
        bands=bands,
    ).to_pylist()
    arm_P, source_P, band_P = (np.array(bands[c].to_pylist()) for c in ("arm", "source", "band"))
    cluster_P = np.array(bands[_cluster(bands)].to_pylist())

    def ends(row: dict[str, Any]) -> dict[str, Any]:
        mine = (arm_P == row["arm"]) & ((source_P == row["source"]) | (row["source"] == "all"))
        return share(band_P[mine] == row["band"], cluster_P[mine]) if row["n"] else {}

    return [row | ends(row) for row in rows]


def _cluster(bands: pa.Table) -> str:
    return "cluster" if "cluster" in bands.column_names else "problem_id"


def share(is_P: np.ndarray, cluster_P: np.ndarray) -> dict[str, Any]:
    """low and high of a share of problems, of which near-duplicates are one, or the reason; nothing without a problem.

    >>> {end: round(v, 3) for end, v in share(np.arange(100) < 14, np.arange(100)).items()}
    {'low': 0.085, 'high': 0.221}
    """
    if not len(is_P):
        return {}
    if len(np.unique(cluster_P)) == len(cluster_P):
        found = wilson(int(is_P.sum()), len(is_P))
        return {} if found is None else {"low": found.low, "high": found.high}
    low, high = (float(end[0]) for end in proportions(folded(is_P[None, :, None] * 1.0, cluster_P), False))
    return {"low": low, "high": high} if np.isfinite(low) else {"reason": ONE_PROBLEM}


def _pair(bands: pa.Table, arm: str, other: str) -> list[dict[str, Any]]:
    common = query(
        f"""
        select a.band, b.band as other_band, a.{_cluster(bands)} as cluster
        from bands a join bands b using (problem_id) where a.arm = $arm and b.arm = $other order by problem_id
        """,
        {"arm": arm, "other": other},
        bands=bands,
    )
    at = Counter(zip(common["band"].to_pylist(), common["other_band"].to_pylist(), strict=True))
    both = {"arm": arm, "other": other, "source": "all", "n": (n := common.num_rows)}
    if n == 0:
        return [both | {"metric": "cell", "reason": "the two arms have no problem in common"}]
    table = [[at.get((a, b), 0) for b in Band] for a in Band]
    first_P, second_P = (np.array([list(Band).index(b) for b in common[c].to_pylist()]) for c in ("band", "other_band"))
    cluster_P = np.array(common["cluster"].to_pylist())
    rows: list[dict[str, Any]] = [
        both
        | {"metric": "cell", "band": a, "other_band": b, "count": table[i][j], "estimate": table[i][j] / n}
        | share((first_P == i) & (second_P == j), cluster_P)
        for i, a in enumerate(Band)
        for j, b in enumerate(Band)
    ]
    live, live_other, shared = sum(table[1]), sum(row[1] for row in table), table[1][1]
    union = live + live_other - shared
    either_P = (first_P == LIVE) | (second_P == LIVE)
    rows += [
        both
        | {
            "metric": "ratio",
            "band": Band.VARIANCE,
            "count": live,
            "reason": None
            if live and live_other
            else f"{arm if live_other else other} has no problem in the variance band",
        }
        | (
            _ratio(first_P == LIVE, second_P == LIVE, cluster_P)
            if live and live_other
            else {"estimate": 0.0 if live_other else None}
        ),
        both
        | {
            "metric": "shared",
            "band": Band.VARIANCE,
            "count": shared,
            "estimate": shared / union if union else None,
            "reason": None if union else "no problem is in either variance band",
        }
        | share((first_P == second_P)[either_P], cluster_P[either_P]),
        both | {"metric": "only", "band": Band.VARIANCE, "count": live - shared},
        {**both, "arm": other, "other": arm, "metric": "only", "band": Band.VARIANCE, "count": live_other - shared},
    ]
    return rows + [both | row for row in band_tests(first_P, second_P, cluster_P)]


def _ratio(live_P: np.ndarray, other_P: np.ndarray, cluster_P: np.ndarray) -> dict[str, Any]:
    """How many times as many problems are in the first arm's variance band, over the same problems, of which
    near-duplicates are one."""
    live_C2 = folded(np.column_stack([live_P, other_P])[None] * 1.0, cluster_P)[0]
    estimate, low, high = ratio(live_C2[None, :, 0], live_C2[None, :, 1], trained=False)
    found = {"estimate": estimate, "clusters": len(live_C2)}
    if np.isfinite(low):
        return found | {"low": low, "high": high}
    alike = "the two variance bands are the same problems: no interval"
    return found | {"reason": ONE_PROBLEM if len(live_C2) < 2 else alike}


@stage(Bands, version=1)
def classify_bands(*, rollouts: Rollouts) -> pa.Table:
    """The bands of one arm's screening. Schema: Bands. Tells what share of it has no answer or no valid tags."""
    rows = store().read(rollouts, [*dict.fromkeys([*COLUMNS, *FORM_COLUMNS])])
    if rows.num_rows:
        progress(rows.num_rows, rows.num_rows, detail=in_words(form_of(rows)), event="noted")
    return bands_of(rows)


@stage(JointBands, version=1)
def keep_joint(*, own: Bands, others: tuple[Bands, ...]) -> pa.Table:
    """One arm's bands, without the problems of its variance band that another arm does not have in its own: what is
    left there all of them can train on. Schema: Bands."""
    return joint_of(store().read(own), [store().read(ref) for ref in others])


def joint_of(own: pa.Table, others: Sequence[pa.Table]) -> pa.Table:
    """Schema: Bands.

    >>> rows = {"source": ["s"] * 2, "arm": ["a"] * 2, "group_size": [8] * 2, "num_correct": [4] * 2}
    >>> own = pa.table({"problem_id": ["p", "q"], **rows, "band": [Band.VARIANCE] * 2}).cast(Bands.schema)
    >>> other = pa.table({"problem_id": ["p", "q"], **rows, "band": [Band.VARIANCE, Band.ALL_ONE]}).cast(Bands.schema)
    >>> joint_of(own, [other])["problem_id"].to_pylist()
    ['p']
    """
    live = [
        set(query("select problem_id from t where is_variance(band)", t=t)["problem_id"].to_pylist()) for t in others
    ]
    rows = zip(own["problem_id"].to_pylist(), own["band"].to_pylist(), strict=True)
    return own.filter(
        pa.array([band != Band.VARIANCE or all(problem in one for one in live) for problem, band in rows])
    )


@stage(BandCrosstab, version=13)
def cross_bands(*, bands: tuple[Bands, ...], train_group_size: int) -> pa.Table:
    """What several arms' bands say together; expectations are for groups of `train_group_size` rollouts."""
    rows = pa.concat_tables([store().read(ref) for ref in bands])
    return crosstab_of(with_clusters(rows, bands), train_group_size)
