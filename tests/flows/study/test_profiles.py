"""What can be asked by name: profiles, questions over them, benchmarks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from flows.study.profiles import ALL_QUESTIONS, BENCHMARKS, DEMO, PROFILES
from flows.study.request import profile_named, profile_of
from flows.study.resolve import resolve
from flows.study.settings import overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grpo.learner_config import BASELINE

QUESTIONS = (
    "matched-thinking",
    "seeds",
    "diversity-after",
    "n-64",
    "n-128",
    "token-matched",
    "controls",
    "objectives",
    "chain",
)


def test_every_open_question_is_a_profile_by_name() -> None:
    assert {p.name for p in ALL_QUESTIONS} == {f"{study}/{q}" for study in ("qwen-1.5b", "paper") for q in QUESTIONS}
    assert all(profile_named(name) is profile for name, profile in PROFILES.items())


def test_benchmarks_are_chosen_by_name() -> None:
    profile = PROFILES["qwen-1.5b"]
    assert [b.name for b in overridden(profile, ["benchmarks=aime, math500_l5"]).benchmarks] == ["aime", "math500_l5"]
    assert overridden(profile, ["benchmarks=[]"]).benchmarks == overridden(profile, ["benchmarks="]).benchmarks == ()
    assert overridden(PROFILES["small"], ["benchmarks=aime"]).benchmarks == (BENCHMARKS[2],)
    assert overridden(PROFILES["paper/n-64"], ["benchmarks=aime"]).benchmarks[0].group_size == 64
    with pytest.raises(UserError, match="unknown benchmark 'amie'"):
        overridden(profile, ["benchmarks=amie"])


def test_a_benchmark_whose_file_is_not_here_says_how_to_do_without(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no math500.jsonl; .*--set benchmarks=\[\]"):
        resolve(replace(DEMO, benchmarks=BENCHMARKS), Store(tmp_path), data=tmp_path)


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


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["group_size=2"], "objectives.pass@k training: learner: advantage pass_at_k is about 4 attempts"),
        (["loss=grpo", "advantage=standardised"], "objectives.REINFORCE\\+\\+: learner: loss grpo is defined with"),
    ],
)
def test_an_objective_that_does_not_go_with_the_change_is_named(asked: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        overridden(PROFILES["demo/objectives"], [f"training.{one}" for one in asked])


HEAD = 'base = "demo"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[objectives.mine]\nadvantage = "max_rl"\nbonus = 0.3\n', "objectives.mine.bonus: .* is read by nothing here"),
        (
            '[objectives.mine]\nadvantage = "max_rl"\nsteps = 5\n',
            "all objectives have the same steps; set training.steps",
        ),
        (f'[objectives."{BASELINE}"]\nadvantage = "max_rl"\n', "the study's own"),
        ('arms = ["no_panel"]\nobjectives = ["MaxRL"]\n', "none of no_panel is trained"),
        ('seeds = []\nobjectives = ["MaxRL"]\n', "seeds is empty"),
        ('arms = ["panel", "thinking"]\nobjectives = ["VPO"]\n', "which thinking has not"),
        ('arms = ["nope"]\nobjectives = ["GRPO"]\n', "unknown arm 'nope'"),
        ("[training]\ngroup_size = 2\n[objectives.entropic]\n", "needs a group_size of 3, not 2"),
    ],
)
def test_objectives_that_do_not_go_together_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        profile_of("mine.toml", HEAD + text)
    assert "\n" not in str(raised.value)


def test_a_table_says_what_its_objective_reads() -> None:
    text = '[objectives.mine]\nadvantage = "pkpo"\nadvantage_k = 2\n[objectives.other]\nadvantage = "max_rl"\n'
    study = profile_of("mine.toml", HEAD + text)
    assert [(one.name, one.training.advantage_k) for one in study.objectives] == [("mine", 2), ("other", 4)]
    assert profile_of("mine.toml", HEAD + 'arms = ["panel"]\nobjectives = ["VPO"]\n').objectives


@pytest.mark.parametrize("profile", ["demo", "demo/objectives"])
def test_only_what_is_asked_for_must_go_with_the_training(profile: str) -> None:
    """With groups of 2, pass@4 does not; MaxRL does."""
    changed = overridden(PROFILES[profile], ["objectives=MaxRL", "training.group_size=2"])
    assert [(one.name, one.training.group_size) for one in changed.objectives] == [("MaxRL", 2)]
