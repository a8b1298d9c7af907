"""An objective of another package trains, end to end, with the demo's model and a real engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.training import train_adapter
from tests.plugged import install
from tests.stages.test_training import DRAW, EVALUATION, START, STILL, Lab, lab

__all__ = ["lab"]
SHORT = replace(STILL, steps=1, eval_every=1, groups_per_step=4, group_size=4, learning_rate=1e-3)


def test_it_trains_and_its_version_is_in_the_name(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It differs from the centred one by where a group's zero lies, so both move the weights and end elsewhere."""

    def train(learner: LearnerConfig) -> Path:
        made = train_adapter(
            pool=lab.pool,
            splits=lab.splits,
            bands=None,
            start=START,
            learner=learner,
            rollouts=DRAW,
            evaluation=EVALUATION,
            evaluation_group_size=0,
        )
        (step,) = lab.store.read(made).to_pylist()
        assert step["step"] == 1 and step["live_groups"] > 0 and step["grad_norm"] > 0
        assert ("lab-tasks==1.0" in str(lab.store.manifest(made).recipe)) == (learner.advantage == "from_middle")
        return next(lab.store.files(made).glob("step-0001/*.safetensors"))

    folder = install(tmp_path_factory.mktemp("plugged"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    theirs, ours = (train(replace(SHORT, advantage=name)) for name in ("from_middle", "centred"))
    assert theirs.read_bytes() != ours.read_bytes()
