"""Rescreening: how often a second screening gives a problem the same band, compared with the beta-binomial fit."""

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Bands, Rollouts
from storage.estimates import LEVEL, Band, band, tail_freedom, variance_chance
from storage.sql import query
from tasks.domain.statistics import difficulty
from tasks.domain.statistics.curves_of_k import levels
from tasks.domain.statistics.means import ONE_PROBLEM, folded, repeated
from tasks.evidence import sampled_with, standard_measure
from tasks.measures.groups import Row, read_groups, stretches, with_clusters
from tasks.stage import stage, store

# Test-retest reliability of bands. How often do two draws of rollouts give a problem the same band? How often is a
# problem that is dead in the first draw live in the second? Both are compared with the prediction of a beta-binomial
# that was fitted to the first draw.
#
# The second draw is new rollouts of the same policy, or the other half of the same group. Halves are averaged over all
# ways to divide the group, which is a function of the counts.
#
# Axes: P problems; 33: band in the first draw × band in the second, in the order of Band.

NO_FIT = "no beta-binomial can be fitted to the first draw"
SECOND, HALVES = "second draw", "halves of one draw"
#: (metric, band) → first bands that the figure is about; None for the agreement of both draws.
FIGURES: dict[tuple[str, Band | None], tuple[int, ...] | None] = {
    ("agreement", None): None,
    ("mislabelled", None): (0, 2),
    ("mislabelled", Band.ALL_ZERO): (0,),
    ("mislabelled", Band.ALL_ONE): (2,),
}


def band_number(n: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the index of a group's band: 0 all_zero, 1 variance, 2 all_one.

    >>> [list(Band)[i].value for i in band_number(np.array([8, 8, 8]), np.array([0, 3, 8]))]
    ['all_zero', 'variance', 'all_one']
    """
    order = list(Band)
    found = np.frompyfunc(lambda size, correct: order.index(band(correct, size)), 2, 1)(n, c)
    return np.asarray(found, np.int64)


def second_draw(n_P: np.ndarray, c_P: np.ndarray, m_P: np.ndarray, d_P: np.ndarray) -> np.ndarray:
    """Return joint_33P, one-hot: each problem's band in the first draw (c of n correct) and in the second (d of m).

    >>> second_draw(*map(np.array, ([8, 8], [0, 8], [8, 8], [0, 7]))).nonzero()
    (array([0, 2]), array([0, 1]), array([0, 1]))
    """
    one_P3, two_P3 = np.eye(3)[band_number(n_P, c_P)], np.eye(3)[band_number(m_P, d_P)]
    return np.einsum("pa,pb->abp", one_P3, two_P3)


def halves(n_P: np.ndarray, c_P: np.ndarray) -> np.ndarray:
    """Return joint_33P: the chance of each pair of bands of a group's two halves. Groups have one size, which is even.

    >>> joint_33P = halves(np.array([4, 4, 4]), np.array([0, 1, 2]))
    >>> joint_33P.trace().round(3).tolist(), joint_33P[0, 1].round(3).tolist()
    ([1.0, 0.0, 0.667], [0.0, 0.5, 0.0])
    """
    from scipy.stats import hypergeom

    size = int(n_P[0]) // 2
    first_PH = np.broadcast_to(np.arange(size + 1), (len(c_P), size + 1))
    chance_PH = hypergeom.pmf(first_PH, n_P[:, None], c_P[:, None], size)
    rest_PH = np.clip(c_P[:, None] - first_PH, 0, size)  # elsewhere the chance is 0
    one, two = (np.eye(3)[band_number(np.full_like(part, size), part)] for part in (first_PH, rest_PH))
    return np.einsum("ph,pha,phb->abp", chance_PH, one, two)


def parts_of(joint: np.ndarray, kept: tuple[int, ...] | None) -> tuple[Any, Any]:
    if kept is None:
        return np.trace(joint), joint.sum(axis=(0, 1))
    dead = joint[list(kept)]
    return dead[:, 1].sum(axis=0), dead.sum(axis=(0, 1))


def measured(joint_33P: np.ndarray, kept: tuple[int, ...] | None, cluster_P: np.ndarray) -> Row:
    """Return a figure over problems, where near-duplicates count once. n: problems, or expected dead problems."""
    part_P, whole_P = parts_of(joint_33P, kept)
    row: Row = {"n": round(float(whole_P.sum()))}
    if whole_P.sum() == 0:
        return row | {"reason": "no problem is called dead"}
    if kept is None or np.isin(whole_P, (0.0, 1.0)).all():  # an ordinary share of all problems, or of the dead ones
        there = whole_P > 0
        return row | levels(folded(part_P[there][None, :, None], cluster_P[there]), trained=False)[0]
    both_PV = folded(np.stack([part_P, whole_P], axis=1)[None], cluster_P)[0]
    row["estimate"] = float(part_P.sum() / whole_P.sum())
    if len(both_PV) < 2:
        return row | {"reason": ONE_PROBLEM}
    low, high = _share_of_parts(both_PV)
    return row | {"low": low, "high": high}


def _share_of_parts(both_PV: np.ndarray) -> tuple[float, float]:
    """Return (low, high) of Σ part / Σ whole, where parts are chances. The interval is Wilson's with Student's t, on
    the effective number of problems, which comes from the linearised variance. The effective number is at most twice Σ
    whole, because each half is the first draw once."""
    from scipy.stats import t

    part, whole = both_PV.sum(axis=0)
    share, n = part / whole, len(both_PV)
    away_P1 = (both_PV[:, :1] - share * both_PV[:, 1:]) * n / whole
    variance = float(away_P1.var(ddof=1)) / n
    size = min(share * (1 - share) / variance if variance > 0 else 2 * whole, 2 * whole)
    df = max(min(float(tail_freedom(away_P1)[0]), whole - 1), 1.0)
    shrink = float(t.ppf((1 + LEVEL) / 2, df)) ** 2 / size
    centre, half = share + shrink / 2, np.sqrt(shrink * (share * (1 - share) + shrink / 4))
    return float(max((centre - half) / (1 + shrink), 0.0)), float(min((centre + half) / (1 + shrink), 1.0))


# ---- the joint distribution of bands, as the beta-binomial of the first draw predicts it


def of_a_second(counts: difficulty.Pairs, size: int, model: difficulty.BetaBinomial) -> np.ndarray:
    """Return joint_33 of the observed bands and the predicted bands of a second draw of `size` rollouts."""
    joint_33 = np.zeros((3, 3))
    for (n, c), times in sorted(Counter(counts).items()):
        joint_33[band_number(np.array([n]), np.array([c]))[0]] += times * np.array(model.bands_given(n, c, size))
    return joint_33


def of_halves(size: int, chance: Callable[[int, int], Any], zero: Any) -> np.ndarray:
    """Return the predicted joint_33 of two halves of `size`. chance: of c correct of n rollouts in one fixed order."""
    able = 1.0 - zero
    zeros, ones = able * chance(2 * size, 0) + zero, able * chance(2 * size, 2 * size)
    mixed, one_half = able * chance(2 * size, size), (able * chance(size, 0) + zero, able * chance(size, size))
    alone = one_half[0] - zeros - mixed, one_half[1] - ones - mixed
    live = 1.0 - zeros - ones - 2 * mixed - 2 * alone[0] - 2 * alone[1]
    return np.array([[zeros, alone[0], mixed], [alone[0], live, alone[1]], [mixed, alone[1], ones]])


def predicted(counts: difficulty.Pairs, draw: str, size: int, alike: float) -> list[dict[str, float]] | None:
    """Return estimate, low and high of each of FIGURES from the fit to the first draw. The bounds hold for any
    distribution of difficulty. Return {} for a figure without dead problems, and None if nothing can be fitted. size:
    rollouts of the second draw. alike: mean number of near-duplicates per cluster (`means.repeated`)."""
    if (found := difficulty.fitted(counts, alike)) is None:
        return None
    halved, seen = draw == HALVES, difficulty.seen
    chance_J3 = seen(size, 0), variance_chance(difficulty.CHANCE_J, size), seen(size, size)
    own = {pair: int(band_number(*(np.array([n]) for n in pair))[0]) for pair in set(counts)}
    figures: dict[str, difficulty.Figure] = {}
    for place, kept in enumerate(FIGURES.values()):
        if halved:
            part_J, whole_J = parts_of(of_halves(size, seen, 0.0), kept)
            figures[str(place)] = difficulty.share_of(part_J, 1.0 if kept is None else whole_J)
        elif mine := [pair for pair in counts if kept is None or own[pair] in kept]:
            figures[str(place)] = difficulty.mean_given(mine, lambda p, k=kept: chance_J3[own[p] if k is None else 1])

    def value(model: difficulty.BetaBinomial, kept: tuple[int, ...] | None) -> Any:
        joint = of_halves(size, model.chance, model.zero) if halved else of_a_second(counts, size, model)
        part, whole = parts_of(joint, kept)
        return part / whole

    ends = difficulty.ranges(counts, figures, alike)
    return [
        found.within(lambda model, kept=kept: value(model, kept), ends[str(place)]) if str(place) in figures else {}
        for place, kept in enumerate(FIGURES.values())
    ]


def rows_of(
    draw: str, n_P: np.ndarray, c_P: np.ndarray, joint_33P: np.ndarray, size: int, clusters: pa.ChunkedArray
) -> list[Row]:
    """Return one row per figure: measured and predicted values for groups of n rollouts with c correct."""
    counts = list(zip(n_P.tolist(), c_P.tolist(), strict=True))
    cluster_P = np.unique(np.array(clusters.to_pylist()), return_inverse=True)[1]
    predictions, rows = predicted(counts, draw, size, repeated(cluster_P)), list[Row]()
    first = size if draw == HALVES else max(n for n, _ in counts)
    for place, ((metric, of), kept) in enumerate(FIGURES.items()):
        row: Row = {"draw": draw, "group_size": first, "other_group_size": size, "metric": metric, "band": of}
        row |= measured(joint_33P, kept, cluster_P)
        if predictions is None:
            row.setdefault("reason", NO_FIT)
        elif one := predictions[place]:
            row["predicted"] = one["estimate"]
            if draw == SECOND:  # for these problems the prediction has bounds but no interval
                row.setdefault("reason", f"predicted: {difficulty.bounds(one, row['n'])}")
            elif why := difficulty.too_few(row["n"]):
                row.setdefault("reason", f"predicted: {why}")
            else:
                row |= {"predicted_low": one["low"], "predicted_high": one["high"]}
        rows.append(row)
    return rows


class Rescreening(
    Ref,
    kind="rescreening",
    schema=nullable(
        "arm str, draw str, metric str, band str, group_size int, other_group_size int, n big, estimate real, low real",
        "high real, predicted real, predicted_low real, predicted_high real, reason str",
    ),
):
    """How often the bands of two draws agree, and how often the first draw predicts it."""


def rescreening_of(bands: pa.Table, again: pa.Table) -> pa.Table:
    """Return one row per arm, draw and metric. bands: the screenings, with `cluster`. again: groups of new rollouts of
    the same policies, for some problems or none.

    draw: `second draw` (new rollouts of the same policy) or `halves of one draw` (of each screening group, over all
    ways to divide it). metric: `agreement` (share of problems with the same band in both draws) or `mislabelled` (share
    of dead problems, all or of one band, that are live in the second draw). estimate: measured. predicted: by the
    beta-binomial fitted to the first draw, with an interval that holds for any distribution of difficulty.
    """
    joined = query(
        """
        select f.*, s.other_size, s.other_correct from bands f left join (
            select arm, problem_id, sum(group_size)::bigint as other_size, sum(num_correct)::bigint as other_correct
            from again group by all) s using (arm, problem_id)
        order by arm, problem_id
        """,
        bands=bands,
        again=again,
    )
    rows = []
    for key, some in stretches(joined, ["arm"]):
        first = joined.slice(some.start, some.stop - some.start)
        both = first.filter(pc.field("other_size").is_valid())
        rows += [key | row for row in (*_of_second(both), *_of_halves(first))]
    return pa.Table.from_pylist(rows, schema=Rescreening.schema)


def _of_second(both: pa.Table) -> list[Row]:
    n_P, c_P, m_P, d_P = (both[c].to_numpy() for c in ("group_size", "num_correct", "other_size", "other_correct"))
    if len(np.unique(m_P)) == 1:
        return rows_of(SECOND, n_P, c_P, second_draw(n_P, c_P, m_P, d_P), int(m_P[0]), both["cluster"])
    why = "the second draw's groups differ in size"
    why = why if len(both) else "no rollouts of the screened policy but the screening's own"
    return [{"draw": SECOND, "metric": "agreement", "n": len(both), "reason": why}]


def _of_halves(first: pa.Table) -> list[Row]:
    n_P, c_P = first["group_size"].to_numpy(), first["num_correct"].to_numpy()
    if len(np.unique(n_P)) == 1 and n_P[0] >= 4 and n_P[0] % 2 == 0:
        return rows_of(HALVES, n_P, c_P, halves(n_P, c_P), int(n_P[0]) // 2, first["cluster"])
    why = "halves are of groups of one even size of at least 4"
    return [{"draw": HALVES, "metric": "agreement", "n": len(n_P), "reason": why}]


def sampled_again(screening: Rollouts, others: tuple[Rollouts, ...]) -> list[Rollouts]:
    """Return the artifacts of `others` that sample the screened policy with equal settings but another seed."""

    def sampling_of(ref: Rollouts, seeded: bool) -> tuple[Row, Row] | None:
        """Return the arguments of policy and sampling. seeded: with the sampling seed."""
        arguments = sampled_with(ref)
        if arguments is None:
            return None
        policy, sampling = (dict(cast("Row", arguments[name])) for name in ("policy", "sampling"))
        return policy | {"step": 0, "seed": 0}, sampling | ({} if seeded else {"seed": 0})

    mine = sampling_of(screening, True), sampling_of(screening, False)
    return [
        one for one in others if sampling_of(one, False) == mine[1] is not None and sampling_of(one, True) != mine[0]
    ]


@standard_measure("rescreening", others="final")
@stage(Rescreening, version=6)
def screen_again(
    *, bands: tuple[Bands, ...], screenings: tuple[Rollouts, ...], others: tuple[Rollouts, ...]
) -> pa.Table:
    """Compare the bands of the screening with those of new rollouts, and the two halves of each screening group."""
    screened = with_clusters(pa.concat_tables([store().read(ref) for ref in bands]), screenings)
    anew = [ref for screening in screenings for ref in sampled_again(screening, others)]
    again = read_groups(anew) if anew else screened.slice(0, 0)
    return rescreening_of(screened, again)
