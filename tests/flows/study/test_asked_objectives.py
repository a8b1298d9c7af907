"""Objectives as a study asks for them: what does not go together is refused in one sentence, what goes is not."""

from __future__ import annotations

import pytest

from flows.study.forms import StudyForm
from flows.study.profiles import PROFILES
from flows.study.request import Request
from flows.study.set_option import overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grpo.learner_config import BASELINE

HEAD = 'base = "demo"\npurpose = "which?"\n'


def refused(text: str) -> str:
    """What is said of a study file, the same from a form."""
    said = []
    for request in (Request(profile="study.toml", text=HEAD + text), StudyForm(file=HEAD + text).request()):
        with pytest.raises(UserError) as raised:
            request.study(Store("nowhere"), planning=True)
        said.append(str(raised.value))
    assert said[0] == said[1] and "\n" not in said[0]
    return said[0]


@pytest.mark.parametrize(
    "line", ["bonus = 0.3", "advantage_k = 2", "tau_positive = 2.0", "candidates = 4", 'bonus_gate = "none"']
)
def test_a_number_that_an_objective_does_not_use_is_refused_in_its_table(line: str) -> None:
    said = refused(f'[objectives.mine]\nadvantage = "max_rl"\n{line}\n')
    assert f"objectives.mine.{line.split()[0]}" in said and "is read by nothing here" in said


def test_a_table_says_what_its_objective_reads() -> None:
    text = '[objectives.mine]\nadvantage = "pkpo"\nadvantage_k = 2\n[objectives.other]\nadvantage = "max_rl"\n'
    study = Request(profile="study.toml", text=HEAD + text).study(Store("nowhere"), planning=True)
    assert [(one.name, one.training.advantage_k) for one in study.profile.objectives] == [("mine", 2), ("other", 4)]


@pytest.mark.parametrize("line", ["seed = 5", "steps = 5", "token_budget = 50"])
def test_one_objective_has_no_budget_and_no_seeds_of_its_own(line: str) -> None:
    assert "all objectives have" in refused(f'[objectives.mine]\nadvantage = "max_rl"\n{line}\n')


def test_no_objective_is_called_what_the_studys_own_is() -> None:
    assert "the study's own" in refused(f'[objectives."{BASELINE}"]\nadvantage = "max_rl"\n')


def test_objectives_of_a_study_that_trains_no_arm_are_refused() -> None:
    assert "none of no_panel is trained" in refused('arms = ["no_panel"]\nobjectives = ["MaxRL"]\n')
    with pytest.raises(UserError, match="none of no_panel is trained"):
        overridden(PROFILES["demo/objectives"], ["arms=no_panel"])


def test_objectives_without_a_seed_or_with_a_rate_that_falls_under_a_budget_are_refused() -> None:
    assert "seeds is empty" in refused('seeds = []\nobjectives = ["MaxRL"]\n')
    with pytest.raises(UserError, match="lr_schedule=cosine falls by steps"):
        overridden(PROFILES["demo/objectives"], ["training.lr_schedule=cosine"])


def test_what_reads_nothing_is_said_of_all_that_were_chosen() -> None:
    with pytest.raises(UserError, match="not by advantage centred, max_rl, pkpo, nor by loss importance_sampling"):
        overridden(PROFILES["demo/objectives"], ["objectives=MaxRL,PKPO", "training.bonus=0.3"])


def test_the_seed_of_a_training_is_the_studys() -> None:
    with pytest.raises(UserError, match=r"training\.seed .* set seeds") as raised:
        overridden(PROFILES["demo"], ["training.seed=5"])
    assert "\n" not in str(raised.value)
    assert "set seeds" in refused("[training]\nseed = 5\n")


@pytest.mark.parametrize("profile", ["demo", "demo/objectives"])
def test_only_what_is_asked_for_must_go_with_the_training(profile: str) -> None:
    """With groups of 2, pass@4 does not; MaxRL does."""
    changed = overridden(PROFILES[profile], ["objectives=MaxRL", "training.group_size=2"])
    assert [(one.name, one.training.group_size) for one in changed.objectives] == [("MaxRL", 2)]
    with pytest.raises(UserError, match=r"objectives.entropic.advantage: .* needs a group_size of 3, not 2") as raised:
        overridden(PROFILES[profile], ["objectives=entropic,MaxRL", "training.group_size=2"])
    assert "unknown" not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["VPO", "Multi-RLVR sum", "Multi-RLVR best"])
def test_several_answers_of_an_arm_without_answer_tags_are_refused_before_its_screening(name: str) -> None:
    assert "which thinking has not" in refused(f'arms = ["panel", "thinking"]\nobjectives = ["{name}"]\n')
    with pytest.raises(UserError, match="told apart by <answer> tags"):
        overridden(PROFILES["demo"], ["arms=thinking", "training.advantage=vpo"])
    assert overridden(PROFILES["demo"], ["arms=panel", f"objectives={name}"]).objectives
