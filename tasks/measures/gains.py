"""The difference of gains: did one arm gain more from training than another? The question that the study asks."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import GainDifferences, Rollouts
from storage.sql import query
from tasks.domain.statistics.contrasts_of_k import told_of
from tasks.domain.statistics.curves_of_k import KCurve, on_common, same_seeds
from tasks.domain.statistics.families import in_families
from tasks.domain.statistics.means import combined
from tasks.measures.grouping import read_groups
from tasks.measures.slicing import counts_of
from tasks.measures.trajectories import equivalence
from tasks.stage import stage


def gains_of(groups: pa.Table) -> pa.Table:
    """Every two arms and source: how much more the first gained in held-out accuracy than the other, from its first
    evaluated step to its last, on the problems that all four were asked.

    Paired by problem; the interval and p are over problems and, for each arm of its own, training seeds. p_adjusted:
    Holm over the pairs of arms on all sources (the confirmatory family of a study), Benjamini-Hochberg by source.
    p_equivalent: that the gains differ by more than MARGIN either way; detectable: the difference that a study of this
    size and spread finds with 80 % power. Null with the reason where an arm was evaluated at one step only.
    """
    span = query(
        "select arm, min(step) as first, max(step) as last from groups group by arm order by arm", groups=groups
    ).to_pylist()
    counts, rows = counts_of(groups), []
    for source in dict.fromkeys(source for _, _, source in counts.places):
        ends = {s["arm"]: [counts.curve(s["arm"], step, source, [1]) for step in (s["first"], s["last"])] for s in span}
        for one, other in combinations(span, 2):
            row: dict[str, Any] = {
                "metric": "difference_of_gains",
                "arm": one["arm"],
                "step": one["last"],
                "other": other["arm"],
                "other_step": other["last"],
                "source": source,
            }
            still = [s["arm"] for s in (one, other) if s["first"] == s["last"]]
            if still:
                rows.append(row | {"n": 0, "reason": f"{' and '.join(still)}: evaluated at one step only"})
                continue
            rows.append(row | _difference(ends[one["arm"]], ends[other["arm"]]))
    named = in_families(
        rows,
        lambda r: ("difference of gains", "holm") if r["source"] == "all" else ("difference of gains by source", "bh"),
        beside=("p_equivalent",),
    )
    return pa.Table.from_pylist(named, schema=GainDifferences.schema)


def _difference(one: list[KCurve], other: list[KCurve]) -> dict[str, Any]:
    """one, other: an arm's pass@1 at its first and last step."""
    ends = [one[1], one[0], other[1], other[0]]
    common, values = on_common(ends)
    if not common:
        return {"n": 0, "reason": "no problem that both arms were asked at both ends"}
    after, before, other_after, other_before = (float(v.mean()) for v in values)
    found = combined(
        list(zip((1.0, -1.0, -1.0, 1.0), values, strict=True)),
        [end.trained for end in ends],
        reach=2.0,
        shares=True,
        paired=same_seeds(ends),
    )
    return (
        {"gain": after - before, "other_gain": other_after - other_before}
        | told_of(found, common, alike="both arms gain the same on every problem")[0]
        | {"p_equivalent": equivalence(found)}
    )


@stage(GainDifferences, version=10)
def compare_gains(*, evaluations: tuple[Rollouts, ...]) -> pa.Table:
    """How much more each arm gained than every other, from held-out evaluations along training."""
    return gains_of(read_groups(evaluations))
