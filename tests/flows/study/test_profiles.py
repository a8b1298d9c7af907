"""What can be asked by name: profiles, questions over them, benchmarks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from flows.study.profiles import ALL_QUESTIONS, BENCHMARKS, DEMO, PROFILES
from flows.study.request import profile_named
from flows.study.resolve import resolve
from flows.study.set_option import overridden
from storage.artifacts.store import Store
from storage.errors import UserError

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
        resolve(replace(DEMO, benchmarks=BENCHMARKS), Store(tmp_path), model=None, encoder=None, data=tmp_path)


def test_a_machine_that_makes_no_embeddings_needs_no_encoder_unless_a_training_is_shown_its_vectors(
    tmp_path: Path,
) -> None:
    find = partial(resolve, store=Store(tmp_path), model=None, encoder=None, data=None)
    asked = ["encoder.name=elsewhere", "hardware.without=embeddings"]
    assert find(overridden(DEMO, asked)).absent.keys() == {"elsewhere"}
    for refused in (asked[:1], [*asked, "training.advantage=darling_encoded"]):
        with pytest.raises(UserError, match="encoder elsewhere is not under"):
            find(overridden(DEMO, refused))


@pytest.mark.parametrize("asked", ["arms=panel,panel", "seeds=0,1,0"])
def test_what_stands_twice_is_refused_and_not_counted_twice(asked: str) -> None:
    """Two seeds that are one would narrow an interval that is of one."""
    with pytest.raises(UserError, match="more than once"):
        overridden(PROFILES["demo"], [asked])


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
        (["group_size=2"], "objectives.pass@k training.advantage: learner: advantage pass_at_k is about 4 attempts"),
        (["loss=grpo", "advantage=standardised"], "objectives.REINFORCE\\+\\+: learner: loss grpo is defined with"),
    ],
)
def test_an_objective_that_does_not_go_with_the_change_is_named(asked: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        overridden(PROFILES["demo/objectives"], [f"training.{one}" for one in asked])


def test_objectives_can_be_asked_for_by_name_one_two_or_all() -> None:
    """`--set objectives=A,B`: a name with a comma in it could not be."""
    study = PROFILES["demo/objectives"]
    names = [one.name for one in study.objectives]
    for asked in ([names[0]], names[-2:], names):
        found = overridden(study, [f"objectives={','.join(asked)}"])
        assert [one.name for one in found.objectives] == asked
    assert len({*names}) == len(names) > 20
