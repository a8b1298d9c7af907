"""What can be asked by name: profiles, questions over them, benchmarks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from flows.study.objectives import alike
from flows.study.profiles import BENCHMARKS, DEMO, PROFILES
from flows.study.request import profile_of
from flows.study.resolve import resolve
from flows.study.settings import overridden
from storage.artifacts.store import Store
from storage.errors import UserError


def test_benchmarks_are_chosen_by_name() -> None:
    profile = PROFILES["qwen-1.5b"]
    assert [b.name for b in overridden(profile, ["benchmarks=aime, math500_l5"]).benchmarks] == ["aime", "math500_l5"]
    assert overridden(profile, ["benchmarks=[]"]).benchmarks == overridden(profile, ["benchmarks="]).benchmarks == ()
    assert overridden(PROFILES["small"], ["benchmarks=aime"]).benchmarks == (BENCHMARKS[2],)
    assert overridden(PROFILES["paper/n-64"], ["benchmarks=aime"]).benchmarks[0].group_size == 64
    with pytest.raises(UserError, match="unknown benchmark 'amie'"):
        overridden(profile, ["benchmarks=amie"])


def test_a_machine_that_makes_no_embeddings_needs_no_encoder_unless_a_training_is_shown_its_vectors(
    tmp_path: Path,
) -> None:
    find = partial(resolve, store=Store(tmp_path))
    asked = ["encoder.name=elsewhere", "hardware.without=embeddings"]
    assert find(overridden(DEMO, asked)).absent.keys() == {"elsewhere"}
    for refused in (asked[:1], [*asked, "training.advantage=darling_encoded"]):
        with pytest.raises(UserError, match="encoder elsewhere is not there"):
            find(overridden(DEMO, refused))


@pytest.mark.parametrize("asked", ["learning_rate=1e-3", "group_size=16", "groups_per_step=3", "token_budget=900"])
def test_what_a_study_changes_of_its_training_is_changed_under_every_objective(asked: str) -> None:
    """They are compared on the same budget, or the difference is of that."""
    before, after = PROFILES["demo/objectives"], overridden(PROFILES["demo/objectives"], [f"training.{asked}"])
    name = asked.split("=")[0]
    assert getattr(after.training, name) != getattr(before.training, name)
    assert {getattr(o.training, name) for o in after.objectives} == {getattr(after.training, name)}
    kept = {o.name: (o.training.advantage, o.training.loss, o.training.minibatches) for o in before.objectives}
    assert kept == {o.name: (o.training.advantage, o.training.loss, o.training.minibatches) for o in after.objectives}


HEAD = 'base = "demo"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[objectives.mine]\nadvantage = "max_rl"\nsteps = 5\n',
            "all objectives have the same steps; set training.steps",
        ),
        ('arms = ["panel", "thinking"]\nobjectives = ["VPO"]\n', "which scaffold thinking lacks"),
        ("[training]\ngroup_size = 2\n[objectives.entropic]\n", "needs a group_size of 3, not 2"),
    ],
)
def test_objectives_that_do_not_go_together_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        profile_of("mine.toml", HEAD + text)
    assert "\n" not in str(raised.value)


def test_objectives_that_train_alike_are_named() -> None:
    """With one update a batch of fresh rollouts a clipped ratio is 1; with two, or another divisor's weights, it counts."""
    assert [alike(profile) for profile in PROFILES.values()] == [[]] * len(PROFILES)
    text = '[objectives.clipped]\nloss = "ppo"\nclip_low = 0.1\n[objectives.means]\nloss = "gspo"\n'
    [said] = alike(profile_of("mine.toml", HEAD + text))
    assert said.startswith("objectives 'as the study has it', 'clipped' train alike")
    assert not alike(profile_of("mine.toml", HEAD + "[training]\nepochs = 2\n" + text))
