"""Crossings: does a policy that is behind with one rollout get ahead with more, and from which k on?"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Groups, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from tasks.domain.statistics.crossings import crossing
from tasks.domain.statistics.curves_of_k import on_common, same_seeds
from tasks.domain.statistics.means import combined
from tasks.measures.groups import Counts, counts_of, read_groups
from tasks.measures.standard import standard_measure
from tasks.stage import stage


class Crossings(
    Ref,
    kind="crossings",
    schema=nullable(
        "arm str, step int, other str, other_step int, source str, crosses bool, estimate real, low real, high real",
        "leader str, k_max int, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Where every two policies' pass@k curves cross."""


def crossings_of(groups: pa.Table) -> pa.Table:
    """Every two (arm, step) on their common problems, over all sources and by source.

    estimate: the k at which the two curves cross, with its interval; null with `they do not cross` and what the data
    would allow otherwise. leader: the arm that is ahead at k = 1; k_max: fewest rollouts of a problem.
    """
    counts = counts_of(groups)
    policies = list(dict.fromkeys((arm, step) for arm, step, _ in counts.places))
    rows = []
    for first, second in combinations(policies, 2):
        sources = [s for arm, step, s in counts.places if (arm, step) == first and (*second, s) in counts.places]
        for source in sources:
            about = {"arm": first[0], "step": first[1], "other": second[0], "other_step": second[1], "source": source}
            rows.append(about | _of_pair(counts, first, second, source))
    return pa.Table.from_pylist(rows, schema=Crossings.schema)


def _of_pair(counts: Counts, first: tuple[str, int], second: tuple[str, int], source: str) -> dict[str, Any]:
    k_max = min(int(counts.columns["group_size"][counts.places[(*p, source)]].min()) for p in (first, second))
    ks = np.arange(1, k_max + 1)
    curves = [counts.curve(*policy, source, ks.tolist()) for policy in (first, second)]
    n, (a, b) = on_common(curves)
    row: dict[str, Any] = {"n": n, "k_max": k_max}
    if n == 0:
        return row | {"reason": "no problem in common"}
    gap = combined(
        [(1.0, a), (-1.0, b)], [c.trained for c in curves], reach=1.0, shares=True, paired=same_seeds(curves)
    )
    ahead = gap.estimate_V[0]
    return (
        row
        | {"clusters": gap.n, "seeds": gap.seeds or None, "holds_for": gap.holds_for}
        | {"leader": None if ahead == 0 else first[0] if ahead > 0 else second[0]}
        | crossing(gap, ks)
    )


@standard_measure("crossings", rollouts="final")
@stage(Crossings, version=9)
def find_crossings(*, rollouts: tuple[Rollouts | Groups, ...], deep: tuple[Rollouts | Groups, ...] = ()) -> pa.Table:
    """Where every two policies' pass@k curves cross. deep: the same policies with more rollouts, if there are any."""
    return crossings_of(read_groups(deep or rollouts))
