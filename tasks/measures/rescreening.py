"""Re-screening: would a second screening give a problem the same band, and does the beta-binomial foresee how often?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Bands, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.sql import query
from tasks.domain.statistics.means import repeated
from tasks.domain.statistics.rescreening import calibration, halves, predict_halves, predict_second, second_draw
from tasks.measures.grouping import read_groups, with_clusters
from tasks.measures.standard import standard_measure
from tasks.origins import sampled_with
from tasks.stage import stage, store

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
