"""Bands: which problems of an arm give a group-relative gradient, and how far the bands of two arms agree."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.schemas import BandCrosstab, Bands, JointBands, Rollouts
from storage.estimates import Band
from storage.sql import query
from tasks.domain.statistics.difficulty import adaptive_saving, expectations
from tasks.domain.statistics.means import ONE_PROBLEM, folded, ratio, repeated
from tasks.domain.statistics.paired_tests import LIVE, band_tests, in_families
from tasks.domain.statistics.shares import proportions, share_interval
from tasks.measures.groups import COLUMNS, FORM_COLUMNS, Row, count_groups, form_of, with_clusters
from tasks.stage import progress, stage, store


def bands_of(rollouts: pa.Table) -> pa.Table:
    """Return each problem's band in one policy's screening. One rollout never gives `variance`. Schema: Bands."""
    return query(
        """
        select problem_id, source, arm, group_size, num_correct, band(num_correct, group_size) as band
        from groups order by source, problem_id
        """,
        groups=count_groups(rollouts),
    ).cast(Bands.schema)


def crosstab_of(bands: pa.Table, train_group_size: int) -> pa.Table:
    """Compare the bands of several arms in a long table, one number per row.

    Columns: metric, arm, other, source (`all`: the whole pool), band, other_band, count, estimate, low and high (over
    problems), p_value, p_adjusted (corrected over the table), n, reason. Metrics:
    - `count`: problems by band. `cell`: problems of two arms by both bands.
    - `ratio`: size of the arm's variance band divided by the other's; near-duplicates count once. `shared`, `only`:
    problems that are in both variance bands, or in one alone.
    - `mcnemar`: test of variance band or not. `stuart_maxwell`: test of all three bands.
    - `expected_live`: expected share of groups with both outcomes at the training group size. `mislabelled`: the same
    share among problems whose own group had one outcome.
    - `beta_a`, `beta_b`, `beta_zero`: the beta-binomial fit; `beta_zero` is the share of problems that no rollout
    solves.
    - `adaptive_saving`: rollouts saved by stopping a problem after one correct and one wrong rollout.
    """
    names = ("problem_id", "arm", "source", "band", "group_size", "num_correct")
    of = {name: np.array(bands[name].to_pylist()) for name in names}
    of["cluster"] = np.array(bands["cluster" if "cluster" in bands.column_names else "problem_id"].to_pylist())
    arms, sources = (np.unique(of[name]).tolist() for name in ("arm", "source"))
    counted, rows = list[Row](), list[Row]()
    for arm, source in product(arms, ("all", *sources)):
        mine_P = (of["arm"] == arm) & ((of["source"] == source) | (source == "all"))
        about, n, cluster_P = {"arm": arm, "source": source}, int(mine_P.sum()), of["cluster"][mine_P]
        for band in Band:
            is_P = of["band"][mine_P] == band
            row: Row = about | {"metric": "count", "band": band, "count": int(is_P.sum()), "n": n}
            why = {"reason": f"{arm} has no problem of {source}"}
            counted.append(row | ({"estimate": is_P.mean()} | share(is_P, cluster_P) if n else why))
        counts = list(zip(*(of[name][mine_P].tolist() for name in ("group_size", "num_correct")), strict=True))
        expected = expectations(counts, train_group_size, repeated(cluster_P) if n else 1.0)
        rows += [about | row for row in (*expected, adaptive_saving(counts))]
    for arm, other in combinations(arms, 2):
        rows += _pair(
            {name: column_P[of["arm"] == arm] for name, column_P in of.items()},
            {name: column_P[of["arm"] == other] for name, column_P in of.items()},
        )
    rows = in_families(counted + rows, lambda _: ("bands between arms", "bh"))
    return pa.Table.from_pylist(rows, schema=BandCrosstab.schema)


def share(is_P: np.ndarray, cluster_P: np.ndarray) -> Row:
    """Return low and high of a share of problems, where near-duplicates count once; {} without problems.

    >>> {end: round(v, 3) for end, v in share(np.arange(100) < 14, np.arange(100)).items()}
    {'low': 0.085, 'high': 0.221}
    """
    if not len(is_P):
        return {}
    if len(np.unique(cluster_P)) == len(cluster_P):
        low, high = share_interval(int(is_P.sum()), len(is_P))
    else:
        low, high = (float(end[0]) for end in proportions(folded(is_P[None, :, None] * 1.0, cluster_P), False))
    return {"low": low, "high": high} if np.isfinite(low) else {"reason": ONE_PROBLEM}


def _pair(one: Mapping[str, np.ndarray], two: Mapping[str, np.ndarray]) -> list[Row]:
    """Return the rows that compare two arms' bands on their common problems."""
    arm, other = one["arm"][0], two["arm"][0]
    ids, at, at_other = np.intersect1d(one["problem_id"], two["problem_id"], return_indices=True)
    both: Row = {"arm": arm, "other": other, "source": "all", "n": (n := len(ids))}
    if n == 0:
        return [both | {"metric": "cell", "reason": "the two arms have no problem in common"}]
    cluster_P, order = one["cluster"][at], {str(band): place for place, band in enumerate(Band)}
    first_P, second_P = (np.array([order[b] for b in bands]) for bands in (one["band"][at], two["band"][at_other]))
    rows: list[Row] = []
    for (i, a), (j, b) in product(enumerate(Band), repeat=2):
        is_P = (first_P == i) & (second_P == j)
        row = both | {"metric": "cell", "band": a, "other_band": b, "count": int(is_P.sum()), "estimate": is_P.mean()}
        rows.append(row | share(is_P, cluster_P))
    live_P, other_P = first_P == LIVE, second_P == LIVE
    live, live_other, shared, either_P = live_P.sum(), other_P.sum(), (live_P & other_P).sum(), live_P | other_P
    ratio_row: Row = {"metric": "ratio", "count": int(live)}
    if live and live_other:
        ratio_row |= _ratio(live_P, other_P, cluster_P)
    else:
        none = arm if live_other else other
        ratio_row |= {"estimate": 0.0 if live_other else None, "reason": f"{none} has no problem in the variance band"}
    shared_row: Row = {"metric": "shared", "count": int(shared), "reason": "no problem is in either variance band"}
    if either_P.any():
        shared_row |= {"estimate": shared / either_P.sum(), "reason": None}
        shared_row |= share((live_P & other_P)[either_P], cluster_P[either_P])
    only = [{"metric": "only", "count": int(live - shared)}]
    only.append({"metric": "only", "count": int(live_other - shared), "arm": other, "other": arm})
    rows += [both | {"band": Band.VARIANCE} | row for row in (ratio_row, shared_row, *only)]
    return rows + [both | row for row in band_tests(first_P, second_P, cluster_P)]


def _ratio(live_P: np.ndarray, other_P: np.ndarray, cluster_P: np.ndarray) -> Row:
    """Return the ratio of the arms' variance bands on common problems. Near-duplicates count once."""
    live_C2 = folded(np.column_stack([live_P, other_P])[None] * 1.0, cluster_P)[0]
    estimate, low, high = ratio(live_C2[None, :, 0], live_C2[None, :, 1], trained=False)
    found = {"estimate": estimate, "clusters": len(live_C2)}
    if np.isfinite(low):
        return found | {"low": low, "high": high}
    alike = "the two variance bands are the same problems: no interval"
    return found | {"reason": ONE_PROBLEM if len(live_C2) < 2 else alike}


@stage(Bands, version=1)
def classify_bands(*, rollouts: Rollouts) -> pa.Table:
    """Return the bands of one arm's screening. Schema: Bands. Report shares without an answer or the arm's form."""
    rows = store().read(rollouts, [*dict.fromkeys([*COLUMNS, *FORM_COLUMNS])])
    if rows.num_rows:
        form = form_of(rows)
        names = {"no_answer": "without an answer", "invalid_tags": "not in the arm's form", "truncated": "cut off"}
        shares = ", ".join(f"{100 * form[name]:.1f} % {words}" for name, words in names.items())
        progress(len(rows), len(rows), detail=f"{len(rows):,} rollouts: {shares}", event="noted")
    return bands_of(rows)


@stage(JointBands, version=1)
def keep_joint(*, own: Bands, others: tuple[Bands, ...]) -> pa.Table:
    """Return an arm's bands, without problems that are in its variance band but not in every arm's. Schema: Bands."""
    return joint_of(store().read(own), [store().read(ref) for ref in others])


def joint_of(own: pa.Table, others: Sequence[pa.Table]) -> pa.Table:
    """Return `own`, without problems that are in its variance band but not in every other's. Schema: Bands.

    >>> rows = {"source": ["s"] * 2, "arm": ["a"] * 2, "group_size": [8] * 2, "num_correct": [4] * 2}
    >>> own = pa.table({"problem_id": ["p", "q"], **rows, "band": [Band.VARIANCE] * 2}).cast(Bands.schema)
    >>> other = pa.table({"problem_id": ["p", "q"], **rows, "band": [Band.VARIANCE, Band.ALL_ONE]}).cast(Bands.schema)
    >>> joint_of(own, [other])["problem_id"].to_pylist()
    ['p']
    """
    live = pc.field("band") == str(Band.VARIANCE)
    for other in others:
        own = own.filter(~live | pc.field("problem_id").isin(other.filter(live)["problem_id"].combine_chunks()))
    return own


@stage(BandCrosstab, version=13)
def cross_bands(*, bands: tuple[Bands, ...], train_group_size: int) -> pa.Table:
    """Compare the bands of several arms. Expected counts are for groups of `train_group_size` rollouts."""
    rows = pa.concat_tables([store().read(ref) for ref in bands])
    return crosstab_of(with_clusters(rows, bands), train_group_size)
