"""Compare objectives: trainings of one arm with the same problems, seeds and token budget, but different losses."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Partitions, Rollouts, Training
from storage.estimates import pass_at_k
from storage.sql import query
from tasks.domain.grpo.second_scaffold import trace_classes
from tasks.domain.statistics.curves_of_k import estimate_rows, levels
from tasks.domain.statistics.means import Seeded, by_seed, contrast, on_common_problems
from tasks.domain.statistics.paired_tests import in_families
from tasks.evidence import standard_measure
from tasks.measures.groups import Row, in_classes
from tasks.stage import stage, store

KS = (1, 8, 32)
#: Number of rollouts among which distinct answers and distinct correct ways are counted (expected values).
AMONG = 8
#: Number of last steps over which the final value of a training metric is averaged.
LAST = 5
_COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "correct", "trace"]
ALIKE = "no problem differs from another"
_STEPS = ("entropy", "length_mean", "live_groups", "signal_groups", "tokens")


class Objectives(
    Ref,
    kind="objectives",
    schema=nullable(
        "arm str, objective str, metric str, before real, after real, after_low real, after_high real",
        "change real, change_low real, change_high real, over_baseline real, over_low real, over_high real",
        "p_value real, p_adjusted real, corrected_low real, corrected_high real, family str, detectable real, n big",
        "seeds int, holds_for str, reason str",
    ),
):
    """The result of each objective for the same arm, and its difference from the baseline objective."""


def values_of(correct: Sequence[bool], answers: Sequence[int | None], traces: Sequence[str | None]) -> dict[str, float]:
    """Return each metric for the rollouts of one problem: unbiased pass@k, and the expected number of distinct answers
    and of distinct correct ways among AMONG of the rollouts. answers: classes by the grader.

    >>> ways = ["1+1=2.", "1+1=2.", "3-1=2.", *["4-1=3."] * 5]
    >>> list(values_of([True] * 3 + [False] * 5, [0] * 3 + [1] * 5, ways).items())[1:]
    [('pass@8', 1.0), ('distinct answers among 8', 2.0), ('right ways among 8', 2.0)]
    """
    n, right = len(correct), [t for t, c in zip(traces, correct, strict=True) if c]
    ks = [k for k in KS if k <= n]
    found = dict(zip((f"pass@{k}" for k in ks), pass_at_k(np.array([n]), np.array([sum(correct)]), ks)[0], strict=True))
    if n >= AMONG:
        found[f"distinct answers among {AMONG}"] = _among([a for a in answers if a is not None], n)
        found[f"right ways among {AMONG}"] = _among(trace_classes(right), n)
    return {metric: float(value) for metric, value in found.items()}


def _among(classes: Sequence[object], n: int) -> float:
    """Return the expected number of classes among AMONG of n rollouts. A rollout without a class adds nothing."""
    counts = np.array([classes.count(one) for one in dict.fromkeys(classes)], dtype=np.int64)
    return float(pass_at_k(np.full(len(counts), n), counts, [AMONG]).sum()) if len(counts) else 0.0


def scale_of(metric: str) -> float:
    return 1.0 if metric.startswith("pass@") else float(AMONG)


def policy_of(seeds: Mapping[int, pa.Table]) -> tuple[list[str], Seeded]:
    """Return (metrics, values scaled to 0..1 and cluster, by seed and problem) of a policy. seeds: adapter (0: none) →
    rollouts with classes and clusters. Problems with fewer rollouts than others are left out."""
    adapter, groups = list[int](), list[Row]()
    for seed, rollouts in seeds.items():
        groups += query(
            """
            select problem_id, any_value(cluster) as cluster, list(correct order by rollout) as correct,
                   list(trace order by rollout) as traces, list(answer_class order by rollout) as answers
            from t group by problem_id qualify count(*) = max(count(*)) over () order by problem_id
            """,
            t=rollouts,
        ).to_pylist()
        adapter += [seed] * (len(groups) - len(adapter))
    found = [values_of(group["correct"], group["answers"], group["traces"]) for group in groups]
    shares_NV = [[value / scale_of(metric) for metric, value in row.items()] for row in found]
    cluster_N = np.unique([group["cluster"] for group in groups], return_inverse=True)[1]
    problem_N = np.array([group["problem_id"] for group in groups])
    return list(found[0]), by_seed(problem_N, np.array(adapter), np.column_stack([shares_NV, cluster_N]))


def compared(metrics: Sequence[str], start: Seeded, ends: Mapping[str, Seeded]) -> list[Row]:
    """Return a row for every objective and metric. ends: by objective; the first is the baseline. change: after minus
    before. over_baseline: after minus the baseline's after; the p-value and `detectable` belong to this difference.
    Both differences are paired by problem; intervals are over problems and seeds."""
    start, *policies = on_common_problems([start, *ends.values()])
    n, rows = len(start.problem_P), list[Row]()
    for objective, end in zip(ends, policies, strict=True):
        change = estimate_rows(contrast((1.0, -1.0), [end, start], reach=1.0, starts=[1]), n, ALIKE)
        over = estimate_rows(contrast((1.0, -1.0), [end, policies[0]], reach=1.0), n, ALIKE)
        own = levels(end.clustered(), end.trained)
        means = [one.values_SPV.mean(axis=(0, 1)) for one in (start, end)]
        for metric, before, after, at_end, gained, more in zip(metrics, *means, own, change, over, strict=False):
            figures = {"before": before, "after": after, "after_low": at_end["low"], "after_high": at_end["high"]}
            figures |= {"change": gained["estimate"]}
            figures |= {"change_low": gained.get("low"), "change_high": gained.get("high")}
            row: Row = {"objective": objective, "metric": metric, "n": n, "seeds": len(end.values_SPV)}
            row |= {"holds_for": gained["holds_for"], "reason": None if "low" in gained else gained.get("reason")}
            if end is not policies[0]:
                figures |= {
                    "over_baseline": more["estimate"],
                    "over_low": more.get("low"),
                    "over_high": more.get("high"),
                    "detectable": more.get("detectable"),
                }
                row |= {"p_value": more.get("p_value"), "reason": row["reason"] or more.get("reason")}
            scale = scale_of(metric)
            if end is not policies[0] and "ends" in more:
                row["ends"] = partial(_scaled, more["ends"], scale)
            rows.append(row | {name: None if v is None else scale * float(v) for name, v in figures.items()})
    return rows


def _scaled(ends: Callable[[float], tuple[float, float]], scale: float, level: float) -> tuple[float, float]:
    low, high = ends(level)
    return scale * low, scale * high


def of_steps(objective: str, trainings: Sequence[Sequence[Mapping[str, Any]]]) -> list[Row]:
    """Return training metrics of an objective, averaged over seeds. `before` is the first step, and `after` the mean of
    the last LAST steps; `tokens` is the total that a training sampled. `reward_NAME`: a weighted part."""
    parts = {name for steps in trainings for step in steps for name in step if name.startswith("reward_")}
    rows = []
    for metric in (*_STEPS, *sorted(parts)):
        row: Row = {"objective": objective, "metric": metric, "seeds": len(trainings)}
        if metric == "tokens":
            row |= {"after": float(np.mean([sum(s["num_tokens"] for s in steps) for steps in trainings]))}
        else:
            known = [[s[metric] for s in steps if s.get(metric) is not None] for steps in trainings]
            if all(known):
                row |= {
                    "before": float(np.mean([values[0] for values in known])),
                    "after": float(np.mean([np.mean(values[-LAST:]) for values in known])),
                }
        rows.append(row | {"reason": "of a training's own steps, which are not held out: no interval"})
    return rows


def _steps(training: Training) -> list[Row]:
    rows = store().read(training, ["step", "entropy", "length_mean", "live_groups", "num_tokens"]).to_pylist()
    steps = {row["step"]: row for row in rows}
    file = store().files(training) / "diagnostics.parquet"
    for row in pq.read_table(file).to_pylist() if file.is_file() else []:
        if row["metric"] == "signal_groups" or row["metric"].startswith("reward_"):
            steps[row["step"]][row["metric"]] = row["value"]
    return rows


@standard_measure(
    "objectives",
    needs=("objectives",),
    starts="objective_starts",
    ends="objective_ends",
    start_answers="objective_start_answers",
    end_answers="objective_end_answers",
    trainings="objective_trainings",
)
@stage(Objectives, version=11)
def compare_objectives(
    *,
    objectives: tuple[str, ...],
    starts: tuple[Rollouts, ...],
    ends: tuple[Rollouts, ...],
    start_answers: tuple[Partitions, ...],
    end_answers: tuple[Partitions, ...],
    trainings: tuple[Training, ...],
) -> pa.Table:
    """Compare the objectives of each arm. p_adjusted: Holm over all arms. objectives: names, one per end and training.
    start_answers, end_answers: classes of each start and end."""
    arms = [store().read(ref, ["arm"])["arm"][0].as_py() for ref in (*starts, *ends)]
    rows = []
    for start, classes, arm in zip(starts, start_answers, arms[: len(starts)], strict=True):
        named: dict[str, list[int]] = {}
        for place, name in enumerate(objectives):
            if arms[len(starts) + place] == arm:
                named.setdefault(name, []).append(place)
        metrics, before = policy_of({0: _read(start, classes)})
        after = {
            name: policy_of({p + 1: _read(ends[p], end_answers[p]) for p in places})[1]
            for name, places in named.items()
        }
        found = compared(metrics, before, after)
        for name, places in named.items():
            found += of_steps(name, [_steps(trainings[p]) for p in places])
        rows += [{"arm": arm, **row} for row in found]
    corrected = in_families(rows, lambda _: ("objectives over the baseline", "holm"))
    return pa.Table.from_pylist(corrected, schema=Objectives.schema)


def _read(rollouts: Rollouts, answers: Partitions) -> pa.Table:
    return pa.concat_tables(in_classes(rollouts, answers, _COLUMNS))
