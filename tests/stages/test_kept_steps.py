"""Folders of steps are ordered by number: `step-10000` stands before `step-9999` by name."""

from __future__ import annotations

import json
from pathlib import Path

from storage.reading.recorded import live_steps
from tasks.training import last_adapter


def test_a_training_starts_from_the_adapter_of_the_last_step(tmp_path: Path) -> None:
    for step in (5_000, 10_000):
        (tmp_path / f"step-{step:04d}").mkdir()
    assert last_adapter(tmp_path).name == "step-10000"


def test_what_is_shown_of_a_training_at_work_is_its_newest_checkpoint_s(tmp_path: Path) -> None:
    for step in (9_999, 10_000):
        state = tmp_path / ".work" / f"training-{'0' * 16}" / "checkpoints" / f"step-{step:04d}" / "state.json"
        state.parent.mkdir(parents=True)
        state.write_text(json.dumps({"steps": [{"step": step}]}))
    assert live_steps(tmp_path)["step"].to_pylist() == [10_000]
