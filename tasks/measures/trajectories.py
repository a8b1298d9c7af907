"""Held-out curves: accuracy by step and source with intervals, and what a gain is set against."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.domain.bands import Band
from tasks.domain.statistics.intervals import wilson
from tasks.domain.statistics.paired_tests import hierarchical_bootstrap, paired

CURVES = pa.schema(
    [
        ("series", pa.string()),
        ("arm", pa.string()),
        ("step", pa.int32()),
        ("source", pa.string()),
        ("metric", pa.string()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_value", pa.float64()),
        ("n", pa.int64()),
        ("rollouts", pa.int64()),
        ("seeds", pa.int32()),
        ("method", pa.string()),
        ("training_share", pa.float64()),
        ("exposure_share", pa.float64()),
        ("reason", pa.string()),
    ]
)


def accuracy_matrix(groups: pa.Table, arm: str, step: int, source: str) -> tuple[np.ndarray, list[str], int]:
    """(values_SP, problem ids, rollouts): share of correct rollouts by policy and problem, on problems that every
    policy of this (arm, step) was evaluated on."""
    part = query(
        """
        select problem_id, dense_rank() over (order by adapter, seed) - 1 as policy, num_correct, group_size
        from groups where arm = $arm and step = $step and ($source = 'all' or source = $source)
        """,
        {"arm": arm, "step": step, "source": source},
        groups=groups,
    ).to_pydict()
    policies = max(part["policy"], default=-1) + 1
    by_problem: dict[str, dict[int, float]] = {}
    for problem, policy, c, n in zip(*part.values(), strict=True):
        by_problem.setdefault(problem, {})[policy] = c / n
    problems = sorted(p for p, found in by_problem.items() if len(found) == policies)
    values = np.array([[by_problem[p][s] for p in problems] for s in range(policies)], np.float64)
    return values.reshape(policies, len(problems)), problems, sum(part["group_size"])


def heldout_rows(groups: pa.Table, draws: int, seed: int) -> list[dict[str, Any]]:
    """`heldout`: mean over problems by arm, step and source. One rollout a problem and one seed: Wilson; else a
    bootstrap over seeds, then problems."""
    keys = query(
        """
        select distinct arm, step, source from groups union select distinct arm, step, 'all' from groups
        order by arm, step, source <> 'all', source
        """,
        groups=groups,
    ).to_pylist()
    rows = []
    for key in keys:
        values_SP, problems, rollouts = accuracy_matrix(groups, **key)
        row = key | {
            "series": "heldout",
            "metric": "pass@1",
            "n": len(problems),
            "rollouts": rollouts,
            "seeds": len(values_SP),
        }
        if not problems:
            rows.append(row | {"reason": "no problem was evaluated under every seed"})
        elif values_SP.size == rollouts == len(problems):
            found = wilson(round(values_SP.sum()), len(problems))
            assert found is not None
            rows.append(row | {"estimate": found.estimate, "low": found.low, "high": found.high, "method": "wilson"})
        else:
            found = hierarchical_bootstrap(values_SP, draws, seed)
            rows.append(row | {"estimate": found.estimate, "low": found.low, "high": found.high, "method": "bootstrap"})
    return rows


def gain_rows(groups: pa.Table, draws: int, seed: int) -> list[dict[str, Any]]:
    """`gain`: accuracy at every arm's last step minus that at its first, paired by problem. The last step is the
    result, whichever step was best. Several seeds: the interval is a bootstrap over seeds, then problems; p_value, sign
    flips of the problems' means over seeds, holds for these seeds only."""
    span = query(
        "select arm, min(step) as first, max(step) as last from groups group by arm order by arm", groups=groups
    ).to_pylist()
    sources = ["all", *sorted(set(groups["source"].to_pylist()))]
    rows = []
    for arm, first, last in ((r["arm"], r["first"], r["last"]) for r in span):
        for source in sources:
            before_SP, problems, _ = accuracy_matrix(groups, arm, first, source)
            after_SP, problems_after, rollouts = accuracy_matrix(groups, arm, last, source)
            common = sorted(set(problems) & set(problems_after))
            row = {
                "series": "gain",
                "metric": "pass@1",
                "arm": arm,
                "step": last,
                "source": source,
                "n": len(common),
                "rollouts": rollouts,
                "seeds": len(after_SP),
            }
            if first == last or not common:
                why = "evaluated at one step only" if first == last else "no problem was evaluated at both ends"
                rows.append(row | {"reason": why})
                continue
            place, place_after = ({p: i for i, p in enumerate(ps)} for ps in (problems, problems_after))
            x = before_SP[:, [place[p] for p in common]].mean(axis=0)
            y_SP = after_SP[:, [place_after[p] for p in common]]
            found = paired(y_SP.mean(axis=0), x, draws=draws, seed=seed)
            low, high, method = found.boot_low, found.boot_high, "paired bootstrap, sign flips"
            if len(y_SP) > 1:
                over = hierarchical_bootstrap(y_SP - x, draws, seed)
                low, high, method = over.low, over.high, "bootstrap over seeds and problems, sign flips"
            rows.append(
                row
                | {
                    "estimate": found.difference,
                    "low": low,
                    "high": high,
                    "p_value": found.p_flip,
                    "method": method,
                    "reason": found.reason,
                }
            )
    return rows


METRICS = (
    "reward_mean",
    "correct_mean",
    "tag_valid_mean",
    "live_groups",
    "entropy",
    "length_mean",
    "length_cv_within",
    "truncated",
    "ratio_max",
    "kl_behaviour",
    "grad_norm",
    *Band,
)


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
               max(value) as high, count(value)::integer as seeds, 'mean over seeds' as method,
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
