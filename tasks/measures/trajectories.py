"""Held-out curves: accuracy by step and source with intervals, and what a gain is set against."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds.experiment import TRAINING_METRICS
from storage.bands import Band
from storage.sql import query
from tasks.domain.statistics.contrasts_of_k import told_of
from tasks.domain.statistics.curves_of_k import INCOMPLETE, levels, on_common
from tasks.domain.statistics.families import family_of_gain, in_families
from tasks.domain.statistics.means import MARGIN, Means, combined
from tasks.measures.slicing import counts_of

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
            "clusters": len(np.unique(found.cluster_P)),
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
