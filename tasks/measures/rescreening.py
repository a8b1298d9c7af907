"""Re-screening: would a second screening give a problem the same band, and does the beta-binomial foresee how often?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Bands, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.rules import LEVEL, Band, band, tail_freedom, variance_chance
from storage.sql import query
from tasks.domain.statistics.curves_of_k import levels
from tasks.domain.statistics.difficulty import (
    CHANCE_J,
    BetaBinomial,
    bounds,
    fitted,
    mean_given,
    mean_of,
    ranges,
    seen,
    share_of,
    too_few,
)
from tasks.domain.statistics.means import ONE_PROBLEM, folded, repeated
from tasks.evidence import sampled_with
from tasks.measures.groups import read_groups, with_clusters
from tasks.measures.standard import standard_measure
from tasks.stage import stage, store

# Test and retest of bands: how often a second draw gives a problem the same band, and how often a problem that the
# first draw called dead is live in the second; beside what the beta-binomial of the first draw predicts.
#
# The second draw is other rollouts of the same policy, or the other half of the same group: the mean over all ways of
# halving it, which counts alone determine.
#
# Axes: P problems.

Row = dict[str, Any]
NO_FIT = "no beta-binomial can be fitted to the first draw"


#: Bands that a group of the first draw is called dead by, in this order.
DEAD = (Band.ALL_ZERO, Band.ALL_ONE)
#: Figures of dead problems, and the bands' places that each is of.
KEPT = {"mislabelled": (0, 2), f"mislabelled {DEAD[0]}": (0,), f"mislabelled {DEAD[1]}": (2,)}


@dataclass(frozen=True, slots=True)
class Draws:
    """Of each problem: chance (0 or 1 where both draws were made) that both give it the same band, that the first gives
    it each of DEAD, and that it does and the second finds it live. size: rollouts of the second draw."""

    same_P: np.ndarray
    dead_P2: np.ndarray
    revived_P2: np.ndarray
    size: int


def second_draw(n_P: np.ndarray, c_P: np.ndarray, m_P: np.ndarray, d_P: np.ndarray) -> Draws:
    """c of n correct in the first draw, d of m in the second, m the same everywhere. Errors: ValueError if it is not.

    >>> draws = second_draw(*map(np.array, ([8, 8, 8], [0, 3, 8], [8, 8, 8], [0, 8, 7])))
    >>> draws.same_P.tolist(), draws.dead_P2.sum(axis=1).tolist(), draws.revived_P2[:, 1].tolist()
    ([1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0])
    """
    if len(np.unique(m_P)) > 1:
        raise ValueError("a second draw has one size")
    first_P, second_P = band_number(n_P, c_P), band_number(m_P, d_P)
    dead_P2 = np.stack([first_P == 0, first_P == 2], axis=1)
    return Draws((first_P == second_P) * 1.0, dead_P2 * 1.0, (dead_P2 & (second_P == 1)[:, None]) * 1.0, int(m_P[0]))


def halves(n_P: np.ndarray, c_P: np.ndarray) -> Draws:
    """Both halves of groups of one even size. Errors: ValueError for groups of several sizes, or smaller than 4.

    >>> draws = halves(np.array([4, 4, 4]), np.array([0, 1, 2]))
    >>> draws.same_P.round(3).tolist(), draws.dead_P2.round(3).tolist(), draws.revived_P2[:, 0].round(3).tolist()
    ([1.0, 0.0, 0.667], [[1.0, 0.0], [0.5, 0.0], [0.167, 0.167]], [0.0, 0.5, 0.0])
    """
    from scipy.stats import hypergeom

    size = int(n_P[0]) // 2
    if len(np.unique(n_P)) > 1 or size < 2 or n_P[0] % 2:
        raise ValueError("halves are of groups of one even size of at least 4")
    first = np.arange(size + 1)[None, :]
    chance = hypergeom.pmf(first, n_P[:, None], c_P[:, None], size)
    rest = np.clip(c_P[:, None] - first, 0, size)  # elsewhere the chance is 0
    one, two = band_number(np.full_like(first, size), first), band_number(np.full_like(rest, size), rest)
    dead = [chance * (one == at) for at in (0, 2)]
    return Draws(
        (chance * (one == two)).sum(axis=1),
        np.stack([part.sum(axis=1) for part in dead], axis=1),
        np.stack([(part * (two == 1)).sum(axis=1) for part in dead], axis=1),
        size,
    )


def band_number(n: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The band's place in their order: 0 all_zero, 1 variance, 2 all_one.

    >>> [list(Band)[i].value for i in band_number(np.array([8, 8, 8]), np.array([0, 3, 8]))]
    ['all_zero', 'variance', 'all_one']
    """
    order = list(Band)
    found = np.frompyfunc(lambda size, correct: order.index(band(correct, size)), 2, 1)(n, c)
    return np.asarray(found, np.int64)


def calibration(draws: Draws, cluster_P: np.ndarray, predicted: Mapping[str, Mapping[str, float]] | None) -> list[Row]:
    """One row a figure: what was measured, over problems with near-duplicates as one, beside what was predicted.

    predicted: figure → estimate, low, high, as `predict_second` or `predict_halves` give it, `given` where these are no
    interval but bounds, empty where no problem is dead; null where nothing could be fitted. metric:
    `agreement`; `mislabelled`, of all dead problems and of those of one band.
    """
    n = len(draws.same_P)
    rows: list[Row] = [
        {"metric": "agreement", "n": n} | levels(folded(draws.same_P[None, :, None], cluster_P), trained=False)[0]
    ]
    for name, columns in (("mislabelled", [0, 1]), *((f"mislabelled {b}", [i]) for i, b in enumerate(DEAD))):
        dead_P, revived_P = draws.dead_P2[:, columns].sum(axis=1), draws.revived_P2[:, columns].sum(axis=1)
        of = name.partition(" ")[2] or None
        rows.append({"metric": "mislabelled", "band": of} | _mislabelled(dead_P, revived_P, cluster_P))
    for row in rows:
        name = f"{row['metric']} {row['band']}" if row.get("band") else row["metric"]
        told = {} if predicted is None else predicted[name]
        if predicted is None:
            row.setdefault("reason", NO_FIT)
        elif told:
            row["predicted"] = told["estimate"]
            if told.get("given"):
                row.setdefault("reason", f"predicted: {bounds(told, row['n'])}")
            elif (why := too_few(row["n"])) is None:
                row |= {"predicted_low": told["low"], "predicted_high": told["high"]}
            else:
                row.setdefault("reason", f"predicted: {why}")
    return rows


def _mislabelled(dead_P: np.ndarray, revived_P: np.ndarray, cluster_P: np.ndarray) -> Row:
    """The share of dead problems that the second draw finds live, of `n` expected dead ones."""
    row: Row = {"n": round(float(dead_P.sum()))}
    if dead_P.sum() == 0:
        return row | {"reason": "no problem is called dead"}
    if np.isin(dead_P, (0.0, 1.0)).all():  # both draws were made: a share of the dead problems
        kept = dead_P > 0
        return row | levels(folded(revived_P[kept][None, :, None], cluster_P[kept]), trained=False)[0]
    both_PV = folded(np.stack([revived_P, dead_P], axis=1)[None], cluster_P)[0]
    row["estimate"] = float(revived_P.sum() / dead_P.sum())
    if len(both_PV) < 2:
        return row | {"reason": ONE_PROBLEM}
    low, high = _share_of_parts(both_PV)
    return row | {"low": low, "high": high}


def _share_of_parts(both_PV: np.ndarray) -> tuple[float, float]:
    """(low, high) of Σ part / Σ whole, whose parts are chances: Wilson's interval on the number of problems that would
    give a share the linearised variance of this one, at most twice the wholes, for either half is once the first;
    Student's t."""
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


def predict_second(
    n_P: np.ndarray, c_P: np.ndarray, size: int, alike: float = 1.0
) -> dict[str, dict[str, float]] | None:
    """What the fit to the first draw says of a second one of `size` rollouts of the same problems. alike: how many
    near-duplicates count as one (`means.repeated`)."""
    counts = list(zip(n_P.tolist(), c_P.tolist(), strict=True))
    found = fitted(counts, alike)
    if found is None:
        return None
    often, bands = (
        Counter(counts),
        {pair: int(band_number(*map(np.array, ([n] for n in pair)))[0]) for pair in set(counts)},
    )

    def mean(among: Mapping[tuple[int, int], int], at: Callable[[int], int]) -> Callable[[BetaBinomial], Any]:
        total = max(sum(among.values()), 1)
        return lambda m: sum(
            times / total * m.bands_given(*pair, size)[at(bands[pair])] for pair, times in sorted(among.items())
        )

    kept = {name: [p for p in counts if bands[p] in places] for name, places in KEPT.items()}
    live_J = variance_chance(CHANCE_J, size)
    chance_J3 = (seen(size, 0), live_J, seen(size, size))
    figures = {name: mean_given(mine, lambda _: live_J) for name, mine in kept.items() if mine}
    ends = ranges(counts, {"agreement": mean_given(counts, lambda pair: chance_J3[bands[pair]])} | figures, alike)
    told = {"agreement": found.within(mean(often, lambda own: own), ends["agreement"])}
    for name, mine in kept.items():
        told[name] = found.within(mean(Counter(mine), lambda _: 1), ends[name]) if mine else {}
    return {name: one | {"given": 1.0} if one else one for name, one in told.items()}


def predict_halves(n_P: np.ndarray, c_P: np.ndarray, alike: float = 1.0) -> dict[str, dict[str, float]] | None:
    """What the fit to whole groups says of their halves."""
    counts, size = list(zip(n_P.tolist(), c_P.tolist(), strict=True)), int(n_P[0]) // 2
    found = fitted(counts, alike)
    if found is None:
        return None

    def chances(chance: Callable[[int, int], Any], zero: Any) -> tuple[Any, Any, Any, Any, Any]:
        """That a half is all_zero or all_one, that both are, and that one is the one and the other the other."""
        able = 1.0 - zero
        one = able * chance(size, 0) + zero, able * chance(size, size)
        both = able * chance(2 * size, 0) + zero, able * chance(2 * size, 2 * size)
        return *one, *both, able * chance(2 * size, size)

    def agreement(zero: Any, one: Any, both_zero: Any, both_one: Any, mixed: Any) -> Any:
        return 1 - 2 * (zero + one) + 2 * (both_zero + both_one) + 2 * mixed

    def revived(kept: tuple[int, ...], zero: Any, one: Any, both_zero: Any, both_one: Any, mixed: Any) -> Any:
        """(chance that a half is dead and the other live, that it is dead)."""
        places = [i // 2 for i in kept]  # all_zero, all_one
        dead = sum((zero, one)[i] for i in places)
        return dead - sum((both_zero + mixed, both_one + mixed)[i] for i in places), dead

    free = chances(seen, 0.0)
    figures = {"agreement": mean_of(agreement(*free))}
    ends = ranges(counts, figures | {name: share_of(*revived(k, *free)) for name, k in KEPT.items()}, alike)

    def mislabelled(m: BetaBinomial, kept: tuple[int, ...]) -> Any:
        part, whole = revived(kept, *chances(m.chance, m.zero))
        return part / whole

    told = {"agreement": found.within(lambda m: agreement(*chances(m.chance, m.zero)), ends["agreement"])}
    return told | {
        name: found.within(lambda m, kept=kept: mislabelled(m, kept), ends[name]) for name, kept in KEPT.items()
    }


SECOND, HALVES = "second draw", "halves of one draw"


class Rescreening(
    Ref,
    kind="rescreening",
    schema=nullable(
        "arm str, draw str, metric str, band str, group_size int, other_group_size int, n big, estimate real, low real",
        "high real, predicted real, predicted_low real, predicted_high real, reason str",
    ),
):
    """Bands of a first and a second draw, beside what the first draw's fit predicts."""


def rescreening_of(bands: pa.Table, again: pa.Table) -> pa.Table:
    """One row per arm, draw and metric. bands: the screenings, with `cluster`; again: groups of the same policies drawn
    anew, which may have fewer problems, or none.

    draw: `second draw` (other rollouts of the same policy, of the problems that have them) or `halves of one draw` (of
    each screening group, over all ways of halving it). metric: `agreement`, the share of problems of the same band;
    `mislabelled`, the share of dead problems (all, or of one band) that the second draw finds live. estimate: measured;
    predicted: by the beta-binomial of the first draw, with an interval that holds whatever the shape of the difficulty.
    """
    rows = []
    for arm in sorted(set(bands["arm"].to_pylist())):
        first = query("from bands where arm = $arm order by problem_id", {"arm": arm}, bands=bands)
        both = query(
            """
            select f.cluster, f.group_size, f.num_correct, sum(s.group_size)::bigint as other_size,
                   sum(s.num_correct)::bigint as other_correct
            from first f join again s using (arm, problem_id)
            group by f.cluster, f.group_size, f.num_correct, problem_id order by problem_id
            """,
            first=first,
            again=again,
        )
        rows += [{"arm": arm} | row for row in (*_of_second(both), *_of_halves(first))]
    return pa.Table.from_pylist(rows, schema=Rescreening.schema)


def _of_second(both: pa.Table) -> list[dict[str, Any]]:
    row: dict[str, Any] = {"draw": SECOND, "metric": "agreement", "n": both.num_rows}
    if both.num_rows == 0:
        return [row | {"reason": "no rollouts of the screened policy but the screening's own"}]
    n_P, c_P, m_P, d_P = (both[c].to_numpy() for c in ("group_size", "num_correct", "other_size", "other_correct"))
    if len(np.unique(m_P)) > 1:
        return [row | {"reason": "the second draw's groups differ in size"}]
    draws = second_draw(n_P, c_P, m_P, d_P)
    cluster_P = numbered(both["cluster"])
    found = calibration(draws, cluster_P, predict_second(n_P, c_P, draws.size, repeated(cluster_P)))
    sizes = {"draw": SECOND, "group_size": int(n_P.max()), "other_group_size": draws.size}
    return [sizes | row for row in found]


def _of_halves(first: pa.Table) -> list[dict[str, Any]]:
    n_P, c_P = first["group_size"].to_numpy(), first["num_correct"].to_numpy()
    try:
        draws = halves(n_P, c_P)
    except ValueError as error:
        return [{"draw": HALVES, "metric": "agreement", "n": len(n_P), "reason": str(error)}]
    cluster_P = numbered(first["cluster"])
    found = calibration(draws, cluster_P, predict_halves(n_P, c_P, repeated(cluster_P)))
    return [{"draw": HALVES, "group_size": draws.size, "other_group_size": draws.size} | row for row in found]


def numbered(clusters: pa.ChunkedArray) -> np.ndarray:
    """A number a cluster."""
    return np.unique(np.array(clusters.to_pylist()), return_inverse=True)[1]


def drawn_anew(screening: Rollouts, others: tuple[Rollouts, ...]) -> list[Rollouts]:
    """Those of `others` that are other rollouts of the screened policy: sampled alike, under another seed."""
    mine = sampled_with(screening)
    found = []
    for other in others:
        theirs = sampled_with(other)
        if mine is None or theirs is None:
            continue
        policies = [
            {k: v for k, v in _fields(a["policy"]).items() if k not in ("step", "seed")} for a in (mine, theirs)
        ]
        one, two = _fields(mine["sampling"]), _fields(theirs["sampling"])
        if policies[0] == policies[1] and one != two and one | {"seed": 0} == two | {"seed": 0}:
            found.append(other)
    return found


def _fields(recorded: object) -> dict[str, Any]:
    return dict(recorded) if isinstance(recorded, dict) else {}


@standard_measure("rescreening", others="final")
@stage(Rescreening, version=6)
def screen_again(
    *, bands: tuple[Bands, ...], screenings: tuple[Rollouts, ...], others: tuple[Rollouts, ...]
) -> pa.Table:
    """Bands of the screening against those of other rollouts of the same policy, and of its halves."""
    screened = with_clusters(pa.concat_tables([store().read(ref) for ref in bands]), screenings)
    anew = [ref for screening in screenings for ref in drawn_anew(screening, others)]
    again = read_groups(anew) if anew else screened.slice(0, 0)
    return rescreening_of(screened, again)
