"""Training curves: held-out accuracy by step, gains against what was trained on, and training's own series."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.kinds import TRAINING_METRICS, Curves, GainDifferences, Pool, Rollouts, Splits, Training
from storage.rules import Band
from storage.sql import query
from tasks.designs import trained_on
from tasks.domain.arms import ARMS
from tasks.domain.statistics.curves_of_k import INCOMPLETE, KCurve, levels, on_common, same_seeds, told_of
from tasks.domain.statistics.means import MARGIN, Means, combined
from tasks.domain.statistics.paired_tests import family_of_gain, in_families
from tasks.measures.groups import counts_of, read_groups
from tasks.stage import stage, store

# Held-out curves: accuracy by step and source with intervals, and what a gain is set against.

LEVELS = "Wilson on the effective number of problems"
DIFFERENCES = "t over problems and seeds"


def heldout_rows(groups: pa.Table) -> list[dict[str, Any]]:
    """`heldout`: mean over problems by arm, step and source, with its interval over problems and seeds."""
    counts, rows = counts_of(groups), []
    for arm, step, source in counts.places:
        found = counts.curve(arm, step, source, [1])
        row = {
            "series": "heldout",
            "metric": "pass@1",
            "arm": arm,
            "step": step,
            "source": source,
            "n": len(found.problem_P),
            "rollouts": found.drawn,
            "seeds": found.seeds,
        }
        if not len(found.problem_P):
            rows.append(row | {"reason": INCOMPLETE})
            continue
        rows.append(row | {"method": LEVELS} | levels(found.by_cluster(), found.trained)[0])
    return rows


def gain_rows(groups: pa.Table) -> list[dict[str, Any]]:
    """`gain`: accuracy at every arm's last step minus that at its first, paired by problem. The last step is the
    result, whichever step was best. p_adjusted: Benjamini-Hochberg over the arms' gains on all sources, and over those
    by source. p_equivalent: that the gain is larger than MARGIN either way."""
    span = query(
        "select arm, min(step) as first, max(step) as last from groups group by arm order by arm", groups=groups
    ).to_pylist()
    counts, rows = counts_of(groups), []
    sources = list(dict.fromkeys(source for _, _, source in counts.places))
    for arm, first, last in ((r["arm"], r["first"], r["last"]) for r in span):
        for source in sources:
            before, after = (counts.curve(arm, step, source, [1]) for step in (first, last))
            common, values = on_common([after, before])
            row: dict[str, Any] = {
                "series": "gain",
                "metric": "pass@1",
                "arm": arm,
                "step": last,
                "source": source,
                "n": common,
                "rollouts": after.drawn,
                "seeds": after.seeds,
            }
            if first == last or not common:
                why = "evaluated at one step only" if first == last else "no problem was evaluated at both ends"
                rows.append(row | {"reason": why})
                continue
            found = combined(
                list(zip((1.0, -1.0), values, strict=True)), [after.trained, before.trained], reach=1.0, shares=True
            )
            told = told_of(found, common, alike="every problem gains the same")[0]
            rows.append(
                row
                | {k: v for k, v in told.items() if k not in ("n", "seeds")}
                | {"method": DIFFERENCES, "p_equivalent": equivalence(found)}
            )
    return in_families(rows, family_of_gain, beside=("p_equivalent",))


def equivalence(found: Means) -> float | None:
    """p that a gain, or a difference of gains, is larger than MARGIN either way; null where it is not known."""
    p = float(found.p_equivalent(MARGIN)[0])
    return p if np.isfinite(p) else None


METRICS = (*TRAINING_METRICS, *Band)


def training_rows(steps: pa.Table) -> list[dict[str, Any]]:
    """`training`: every metric by step, averaged over seeds; low and high are the smallest and largest seed.
    `all_zero`, `variance`, `all_one` are the step's groups by band and `variance_share` what is left of the training
    pool's variance band: how the pool migrates."""
    metrics = [m for m in METRICS if m in steps.column_names]
    parts = [f"select arm, step, '{m}' as metric, {m}::double as value from steps" for m in metrics]
    if set(Band) <= set(metrics):
        share = "variance / nullif(all_zero + variance + all_one, 0)"
        parts.append(f"select arm, step, 'variance_share', {share} from steps")
    return query(
        f"""
        select 'training' as series, arm, step, metric, avg(value) as estimate, min(value) as low,
               max(value) as high, count(value)::integer as seeds,
               'mean over seeds, from the least to the largest' as method,
               case when count(value) = 0 then 'not measured at this step' end as reason
        from ({" union all ".join(parts)}) group by arm, step, metric order by arm, metric, step
        """,
        steps=steps,
    ).to_pylist()


def with_shares(
    rows: list[dict[str, Any]], training: dict[str, dict[str, int]], exposure: dict[str, dict[str, int]]
) -> list[dict[str, Any]]:
    """Gains beside what share of its training pool, and of the rollout groups it was really trained on, an arm had
    from each source. training, exposure: arm → source → count."""

    def share(counts: dict[str, dict[str, int]], row: dict[str, Any]) -> float | None:
        own = counts.get(str(row["arm"]), {})
        total = sum(own.values())
        return (1.0 if row["source"] == "all" else own.get(str(row["source"]), 0) / total) if total else None

    return [
        row | {"training_share": share(training, row), "exposure_share": share(exposure, row)}
        if row["series"] == "gain"
        else row
        for row in rows
    ]


Shares = dict[str, dict[str, int]]


def curves_of(
    groups: pa.Table, steps: pa.Table | None, training: Shares, exposure: Shares, ends: pa.Table | None = None
) -> pa.Table:
    """Columns of Curves. series: `heldout`, the curve; `gain` (with the shares of training pool and exposure);
    `training`. ends: groups of the final evaluation, which the gains are of; None: the curve's are final."""
    rows = heldout_rows(groups)
    rows += with_shares(gain_rows(groups if ends is None else ends), training, exposure)
    if steps is not None and steps.num_rows:
        rows += training_rows(steps)
    return pa.Table.from_pylist(rows, schema=Curves.schema)


def counted(table: pa.Table) -> Shares:
    """arm → source → rows; an arm that is evaluated with another's adapter has that one's."""
    found: Shares = {}
    for row in query("select arm, source, count(*) as n from t group by arm, source", t=table).to_pylist():
        found.setdefault(row["arm"], {})[row["source"]] = row["n"]
    for name, arm in ARMS.items():
        if name not in found and arm.trained_as in found:
            found[name] = found[arm.trained_as]
    return found


@stage(Curves, version=15)
def training_curves(
    *,
    trainings: tuple[Training, ...],
    evaluations: tuple[Rollouts, ...],
    final: tuple[Rollouts, ...],
    pool: Pool,
    splits: Splits,
) -> pa.Table:
    """Held-out by step, source and arm with intervals; gains, of the final evaluations, against training-pool share and
    actual exposure."""
    problems, held = store().read(pool, ["problem_id", "source"]), store().read(splits)
    groups, ends = read_groups(list(dict.fromkeys(evaluations))), read_groups(final)
    if not trainings:
        return curves_of(groups, None, {}, {}, ends)
    steps = pa.concat_tables([store().read(ref) for ref in trainings])
    pools = pa.concat_tables([trained_on(ref, problems, held) for ref in trainings])
    exposures = [store().files(ref) / "exposure.parquet" for ref in trainings]
    seen = [pq.read_table(path, columns=["arm", "source"]) for path in exposures if path.exists()]
    exposure = counted(pa.concat_tables(seen)) if seen else {}
    return curves_of(groups, steps, counted(pools), exposure, ends)


# The difference of gains: did one arm gain more from training than another? The question that the study asks.


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
