"""Objectives compared, by hand and where nothing differs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.kinds import Rollouts, Training
from storage.artifacts.store import Store
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.grpo.learner_config import BASELINE
from tasks.domain.statistics.means import Seeded
from tasks.measures.objectives import compare_objectives, compared, of_steps, values_of
from tasks.partitions import partition_answers
from tests.dashboards.made_up_rows import steps_of
from tests.dashboards.synthetic import put
from tests.measures.conftest import MakeRollouts

NAMES = ["pass@1"]


def policy(*seeds: Sequence[float] | np.ndarray, trained: int = 0) -> Seeded:
    """Of pass@1 by seed and problem. trained: the number of its first adapter."""
    values_SP = np.array(seeds)
    cluster_SP = np.tile(np.arange(values_SP.shape[1]), (len(seeds), 1))
    values_SPV = np.stack([values_SP, cluster_SP], axis=2)
    return Seeded(values_SPV, np.arange(values_SP.shape[1]), trained > 0, np.arange(len(seeds)) + trained)


def test_metrics_of_a_problem_by_hand() -> None:
    """Of 16: one right way seven times, another once, one wrong answer eight times. Among 8 the first way is missed with
    chance C(9, 8)/C(16, 8), the second with C(15, 8)/C(16, 8) = 1/2, and that answer with C(8, 8)/C(16, 8)."""
    traces = [*["1+1=2."] * 7, "3-1=2.", *["hm"] * 8]
    found = values_of([True] * 8 + [False] * 8, [0] * 8 + [1] * 8, traces)
    assert found["pass@1"] == 0.5 and found["pass@8"] == pytest.approx(1 - 1 / 12870)
    assert found["distinct answers among 8"] == pytest.approx(2 * (1 - 1 / 12870))
    assert found["right ways among 8"] == pytest.approx(1 - 9 / 12870 + 0.5)


def test_wrong_answers_are_one_if_the_grader_says_so(rollouts: MakeRollouts, in_store: Store) -> None:
    """By value or text they would be two: neither is a number, and they are spelt otherwise."""

    def answering(*wrong: str, step: int) -> Rollouts:
        rows = rollouts({"p0": "w" * 8, "p1": "w" * 8}, step=step)
        at = rows.schema.get_field_index("canonical")
        return put(in_store, Rollouts, rows.set_column(at, rows.schema.field(at), pa.array([*wrong] * 2)), about=step)

    start, end = answering(*["x+1"] * 4, *["1+x"] * 4, step=0), answering(*["x+1"] * 4, *["x+2"] * 4, step=5)
    table = compare_objectives(
        objectives=(BASELINE,),
        starts=(start,),
        ends=(end,),
        start_answers=(partition_answers(rollouts=start, grader_version=GRADER_VERSION),),
        end_answers=(partition_answers(rollouts=end, grader_version=GRADER_VERSION),),
        trainings=(put(in_store, Training, steps_of("panel", 0, 5)),),
    )
    found = {row["metric"]: row for row in in_store.read(table).to_pylist()}["distinct answers among 8"]
    assert (found["before"], found["after"]) == (1.0, 2.0)


def test_changes_and_what_is_more_than_the_baselines() -> None:
    start = policy([0.0, 0.0, 0.5, 0.5])
    ends = {BASELINE: policy([0.5, 0.0, 0.5, 1.0], trained=1), "other": policy([1.0, 0.0, 1.0, 1.0], trained=2)}
    own, other = compared(NAMES, start, ends)
    assert (own["before"], own["after"], own["change"]) == (0.25, 0.5, 0.25) and "over_baseline" not in own
    assert (other["change"], other["over_baseline"]) == (0.5, 0.25)
    assert other["over_low"] < 0.25 < other["over_high"] and 0 < other["p_value"] < 1
    assert (own["seeds"], own["n"]) == (1, 4)


def test_an_objective_that_changes_nothing_is_not_told_as_better() -> None:
    """One in twenty at most, of studies of like objectives; here of 200."""
    rng, said = np.random.default_rng(1), 0
    for _ in range(200):
        problems = rng.uniform(0, 1, 20)
        drawn = [policy(*(rng.binomial(8, problems) / 8 for _ in range(3)), trained=first) for first in (1, 4)]
        row = compared(NAMES, policy(problems), {BASELINE: drawn[0], "alike": drawn[1]})[1]
        said += row["p_value"] < 0.05
    assert said <= 18


def test_of_steps_takes_the_first_and_the_last_five() -> None:
    steps = [{"entropy": e, "live_groups": 0.5, "num_tokens": 10, "signal_groups": None} for e in (9.0, *[1.0] * 6)]
    found = {row["metric"]: row for row in of_steps("x", [steps, steps])}
    assert (found["entropy"]["before"], found["entropy"]["after"]) == (9.0, 1.0)
    assert found["tokens"]["after"] == 70 and "before" not in found["signal_groups"]
