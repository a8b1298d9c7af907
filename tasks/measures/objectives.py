"""Objectives compared: the same arm, problems, seeds and token budget, trained otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.kinds import Partitions, Rollouts, Training
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.rules import pass_at_k
from tasks.domain.grpo.second_scaffold import trace_classes
from tasks.domain.statistics.means import combined, folded
from tasks.domain.statistics.paired_tests import in_families
from tasks.measures.groups import classed, with_clusters
from tasks.measures.standard import standard_measure
from tasks.stage import stage, store

KS = (1, 8, 32)
#: Answers and ways are counted among so many rollouts of a problem, whatever was drawn.
AMONG = 8
#: Of a training's last steps, whose mean is what it ends with.
LAST = 5
_COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "correct", "trace"]
_JUDGED = ["correct", "answer_class", "trace"]
_STEPS = ("entropy", "live_groups", "signal_groups", "tokens")


class Objectives(
    Ref,
    kind="objectives",
    schema=nullable(
        "arm str, objective str, metric str, before real, after real",
        "change real, change_low real, change_high real, over_baseline real, over_low real, over_high real",
        "p_value real, p_adjusted real, family str, n big, seeds int, holds_for str, reason str",
    ),
):
    """What each objective makes of the same arm, and how much more than the study's own."""


@dataclass(frozen=True, slots=True)
class Policy:
    """values_PV of its problems, metric by metric."""

    problem_P: tuple[str, ...]
    values_PV: np.ndarray


def metrics(size: int) -> tuple[str, ...]:
    """Of groups of this size.

    >>> metrics(8)
    ('pass@1', 'pass@8', 'distinct answers among 8', 'right ways among 8')
    """
    return (
        *(f"pass@{k}" for k in KS if k <= size),
        *((f"distinct answers among {AMONG}", f"right ways among {AMONG}") if size >= AMONG else ()),
    )


def reaches(names: Sequence[str]) -> list[float]:
    return [1.0 if name.startswith("pass@") else float(AMONG) for name in names]


def values_of(correct: Sequence[bool], answers: Sequence[int | None], traces: Sequence[str | None]) -> list[float]:
    """Of one problem's rollouts, as `metrics`: unbiased pass@k, and the expected number of answers, and of ways of
    right rollouts, among AMONG of them drawn without replacement. answers: their classes by the grader.

    >>> ways = ["1+1=2.", "1+1=2.", "3-1=2.", *["4-1=3."] * 5]
    >>> values_of([True] * 3 + [False] * 5, [0] * 3 + [1] * 5, ways)
    [0.375, 1.0, 2.0, 2.0]
    """
    n, right = len(correct), [t for t, c in zip(traces, correct, strict=True) if c]
    ks = [k for k in KS if k <= n]
    found = pass_at_k(np.array([n]), np.array([sum(correct)]), ks)[0].tolist()
    if n < AMONG:
        return found
    return [*found, _among([a for a in answers if a is not None], n), _among(trace_classes(right), n)]


def _among(classes: Sequence[object], n: int) -> float:
    """Expected number of classes among AMONG of n rollouts, of which those without a class count none."""
    counts = np.array([classes.count(one) for one in dict.fromkeys(classes)], dtype=np.int64)
    return float(pass_at_k(np.full(len(counts), n), counts, [AMONG]).sum()) if len(counts) else 0.0


def policy_of(rollouts: pa.Table) -> Policy:
    """Of rollouts with their classes. Problems in the order of their ids; one with fewer rollouts than the others is
    left out."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rollouts.select(["problem_id", *_JUDGED]).to_pylist():
        groups.setdefault(row["problem_id"], []).append(row)
    size = max(len(group) for group in groups.values())
    ids = tuple(sorted(p for p, group in groups.items() if len(group) == size))
    columns = [[[row[name] for row in groups[p]] for name in _JUDGED] for p in ids]
    return Policy(ids, np.array([values_of(*part) for part in columns]))


def compared(
    start: Policy, ends: Mapping[str, Sequence[Policy]], clusters: Mapping[str, str], size: int
) -> list[dict[str, Any]]:
    """A row for every objective and metric. ends: by objective, a policy a seed; the first is the baseline.

    change: after minus before; over_baseline: after minus the baseline's after. Both are paired by problem, their
    intervals over problems and seeds; p is of over_baseline.
    """
    names = metrics(size)
    common = set(start.problem_P).intersection(*(p.problem_P for seeds in ends.values() for p in seeds))
    kept, cluster_P = sorted(common), np.array([clusters[p] for p in sorted(common)])
    scale_V = np.array(reaches(names))

    def shares(policies: Sequence[Policy]) -> np.ndarray:
        at = [{p: i for i, p in enumerate(policy.problem_P)} for policy in policies]
        rows = [policy.values_PV[[place[p] for p in kept]] for policy, place in zip(policies, at, strict=True)]
        return np.stack(rows) / scale_V

    before_SPV, baseline = shares([start]), next(iter(ends))
    baseline_SPV = shares(ends[baseline])
    rows = []
    for objective, seeds in ends.items():
        after_SPV = shares(seeds)
        change = combined(
            [(s, folded(v, cluster_P)) for s, v in ((1.0, after_SPV), (-1.0, before_SPV))],
            [True, False],
            reach=1.0,
            shares=True,
        )
        over = combined(
            [(s, folded(v, cluster_P)) for s, v in ((1.0, after_SPV), (-1.0, baseline_SPV))],
            [True, True],
            reach=1.0,
            shares=True,
        )
        ends_of_change, ends_of_over, p_V = change.interval(), over.interval(), over.p_value()
        for v, metric in enumerate(names):
            row: dict[str, Any] = {"objective": objective, "metric": metric, "n": len(kept), "seeds": len(seeds)}
            row |= {
                "before": scale_V[v] * before_SPV[0, :, v].mean(),
                "after": scale_V[v] * after_SPV[:, :, v].mean(),
                "change": scale_V[v] * change.estimate_V[v],
                "change_low": scale_V[v] * ends_of_change[0][v],
                "change_high": scale_V[v] * ends_of_change[1][v],
                "holds_for": change.holds_for,
            }
            if objective != baseline:
                row |= {
                    "over_baseline": scale_V[v] * over.estimate_V[v],
                    "over_low": scale_V[v] * ends_of_over[0][v],
                    "over_high": scale_V[v] * ends_of_over[1][v],
                    "p_value": p_V[v],
                }
            told = {name: None if isinstance(x, float) and np.isnan(x) else x for name, x in row.items()}
            untold = objective != baseline and None in (told["over_low"], told["p_value"])
            unknown = change if told["change_low"] is None else over if untold else None
            rows.append(told | ({"reason": unknown.unknown(v, "no problem differs from another")} if unknown else {}))
    return rows


def of_steps(objective: str, trainings: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What the trainings of an objective say of themselves, means over seeds: at the first step and over the last ones;
    tokens: all that a training sampled."""
    rows = []
    for metric in _STEPS:
        row: dict[str, Any] = {"objective": objective, "metric": metric, "seeds": len(trainings)}
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


def _steps(training: Training) -> list[dict[str, Any]]:
    rows = store().read(training, ["step", "entropy", "live_groups", "num_tokens"]).to_pylist()
    told = store().files(training) / "diagnostics.parquet"
    signal = pq.read_table(told).to_pylist() if told.is_file() else []
    by_step = {row["step"]: row["value"] for row in signal if row["metric"] == "signal_groups"}
    return [row | {"signal_groups": by_step.get(row["step"])} for row in rows]


@standard_measure(
    "objectives",
    needs=("objectives",),
    starts="objective_starts",
    ends="objective_ends",
    start_answers="objective_start_answers",
    end_answers="objective_end_answers",
    trainings="objective_trainings",
)
@stage(Objectives, version=7)
def compare_objectives(
    *,
    objectives: tuple[str, ...],
    starts: tuple[Rollouts, ...],
    ends: tuple[Rollouts, ...],
    start_answers: tuple[Partitions, ...],
    end_answers: tuple[Partitions, ...],
    trainings: tuple[Training, ...],
) -> pa.Table:
    """objectives: of each end and training. start_answers, end_answers: the classes of each start and end. Every arm is
    compared by itself; p_adjusted: Holm over all of them."""
    rows = []
    for start, classes in zip(starts, start_answers, strict=True):
        arm, size = _arm_of(start)
        mine = [place for place, end in enumerate(ends) if _arm_of(end)[0] == arm]
        named: dict[str, list[int]] = {}
        for place in mine:
            named.setdefault(objectives[place], []).append(place)
        read = {name: [_policy(ends[p], end_answers[p]) for p in places] for name, places in named.items()}
        began = _policy(start, classes)
        known = with_clusters(pa.table({"problem_id": list(began.problem_P)}), [start]).to_pylist()
        clusters = {row["problem_id"]: row["cluster"] for row in known}
        found = compared(began, read, clusters, size)
        for name, places in named.items():
            found += of_steps(name, [_steps(trainings[p]) for p in places])
        rows += [{"arm": arm, **row} for row in found]
    corrected = in_families(rows, lambda _: ("objectives over the baseline", "holm"))
    return pa.Table.from_pylist(corrected, schema=Objectives.schema)


def _policy(rollouts: Rollouts, answers: Partitions) -> Policy:
    return policy_of(classed(store().read(rollouts, _COLUMNS), [store().read(answers)]))


def _arm_of(rollouts: Rollouts) -> tuple[str, int]:
    """(arm, rollouts of a problem that has most)."""
    table = store().read(rollouts, ["arm", "problem_id"])
    return table["arm"][0].as_py(), max(table["problem_id"].value_counts().field("counts").to_pylist())
