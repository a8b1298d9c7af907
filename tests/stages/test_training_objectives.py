"""Objectives through the training stage, with the demo's model and a real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.artifacts.kinds import DIAGNOSTICS, Training
from tasks.training import train_adapter
from tests.stages.test_training import DRAW, EVALUATION, START, STILL, Lab, lab

__all__ = ["lab"]
TWO_STEPS = replace(STILL, groups_per_step=4, group_size=4, learning_rate=1e-3)


@pytest.fixture
def train(lab: Lab) -> Callable[..., Training]:
    def make(**changes: object) -> Training:
        return train_adapter(
            pool=lab.pool,
            splits=lab.splits,
            bands=None,
            start=START,
            learner=replace(TWO_STEPS, **changes),  # type: ignore[arg-type]
            rollouts=DRAW,
            evaluation=EVALUATION,
            evaluation_group_size=0,
        )

    return make


def test_what_two_objectives_sample_alike_is_paid_once(lab: Lab, train) -> None:
    """Their first steps ask the same start the same problems with the same noise; the second steps are other policies."""
    notes = [lab.store.manifest(train(advantage=a)).provenance.notes for a in ("centred", "max_rl")]
    assert [int(told["sampled_rollouts"]) for told in notes] == [2 * 4 * 4, 4 * 4]
    assert 0 < int(notes[1]["sampled_tokens"]) < int(notes[0]["sampled_tokens"])


def test_answers_and_strategies_reach_the_objective(lab: Lab, train) -> None:
    """Visits are kept in the checkpoint while it trains; what the objective says of each step lies beside the rows."""
    explored, ways = (train(advantage=a, bonus_gate="none") for a in ("ucb_mean", "darling_trace"))
    for made, wanted in ((explored, {"signal_groups", "distinct_answers", "bonus"}), (ways, {"classes", "diversity"})):
        told = pq.read_table(lab.store.files(made) / "diagnostics.parquet")
        assert told.schema.names == DIAGNOSTICS.names and wanted <= set(told["metric"].to_pylist())
        assert set(told["step"].to_pylist()) == {1, 2}
    classes = {r["step"]: r["value"] for r in told.to_pylist() if r["metric"] == "classes"}
    assert all(1 <= number <= 4 for number in classes.values())


def test_visits_are_of_the_answers_that_were_given(lab: Lab, train, monkeypatch) -> None:
    from tasks.engines.learning import checkpoints

    kept: list[dict] = []
    save = checkpoints.save

    def look(root: Path, state: checkpoints.State, keep: int) -> Path:
        folder = save(root, state, keep)
        kept.append(json.loads((folder / "state.json").read_text())["objective"])
        return folder

    monkeypatch.setattr(checkpoints, "save", look)
    train(advantage="ucb_mean", seed=5)
    visits = kept[-1]["visits"]
    assert len(kept) == 2 and 4 <= len(visits) <= 8
    assert 0 < sum(sum(answers.values()) for answers in visits.values()) <= 2 * 4 * 4
