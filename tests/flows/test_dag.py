"""The DAG hands values down: what planning a study calls, counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flows.experiment import experiment
from flows.study.profiles import DEMO, PAPER
from flows.study.questions import PROFILES
from storage.artifacts.store import Store
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, Step, session
from tests.flows.running.test_plan import study_of


def planned(tmp_path: Path, name: str) -> list[Step]:
    planning = Session(Store(tmp_path), Toolbox(), planning=True)
    with session(planning):
        experiment(study_of(PROFILES[name], tmp_path))
    return planning.steps


@pytest.mark.parametrize("name", [DEMO.name, PAPER.name, "paper/controls", "paper/seeds", "qwen-1.5b"])
def test_every_artifact_is_asked_for_once(tmp_path: Path, name: str) -> None:
    """Step 0 alone is shared: seeds of one arm, and arms of one prompt, start from the same policy."""
    calls = Counter(step.ref for step in planned(tmp_path, name))
    again = {str(ref): n for ref, n in calls.items() if n > 1}
    assert not again


def test_an_arm_evaluated_with_anothers_adapter_receives_its_training(tmp_path: Path) -> None:
    steps = planned(tmp_path, "paper/controls")
    trainings = [step for step in steps if step.title == "train panel seed 0"]
    assert len(trainings) == 1
    served = {step.arguments["training"] for step in steps if step.title.startswith("evaluate no_panel at step 1")}
    assert served == {trainings[0].ref}
