from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from storage.errors import UserError
from tasks.engines.learning import checkpoints


def state(step: int, recipe: str = "r") -> checkpoints.State:
    return checkpoints.State(step, recipe, {"weights": torch.full((3,), float(step))}, [{"step": step}], [])


def test_the_newest_comes_back_and_old_ones_go(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoints.save(tmp_path, state(step), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0002", "step-0003"]
    found = checkpoints.latest(tmp_path, "r")
    assert found is not None
    assert (found.step, found.steps, found.tensors["weights"].tolist()) == (3, [{"step": 3}], [3.0] * 3)


def test_steps_are_ordered_by_number_and_not_by_name(tmp_path: Path) -> None:
    for step in (9_998, 9_999, 10_000, 10_001):
        checkpoints.save(tmp_path, state(step), keep=2)
    assert {p.name for p in tmp_path.iterdir()} == {"step-10000", "step-10001"}
    found = checkpoints.latest(tmp_path, "r")
    assert found is not None and found.step == 10_001


def test_half_a_checkpoint_does_not_count(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, state(1), keep=2)
    (tmp_path / ".step-0002.77").mkdir()
    (tmp_path / ".step-0002.77" / "state.json").write_text("{")
    found = checkpoints.latest(tmp_path, "r")
    assert found is not None and found.step == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0001"]


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_never_written_over_good_ones(tmp_path: Path, spoilt: float) -> None:
    checkpoints.save(tmp_path, state(1), keep=1)
    with pytest.raises(UserError, match=r"after step 2 weights are not finite"):
        checkpoints.save(tmp_path, replace(state(2), tensors={"weights": torch.tensor([1.0, spoilt])}), keep=1)
    found = checkpoints.latest(tmp_path, "r")
    assert found is not None and found.step == 1 and found.tensors["weights"].tolist() == [1.0] * 3
    assert [p.name for p in tmp_path.iterdir()] == ["step-0001"]
