"""All that is wrong with a file, said in one go: what can be looked at is, whatever else of it cannot be read."""

from __future__ import annotations

import pytest

from flows.study.request import profile_of
from storage.errors import UserError

WRONG = """base = "demo"
sedes = [0]
arms = ["panel", "thinkin"]
measures = ["hm"]
[hardware]
engine = "vlm"
max_model_len = "16k"
[pool]
heldout_per_source = "five"
sources = ["amc", "amc"]
[scaffolds.mine]
template = "Solve it. <w>...</w> <answer>...</answer>"
trace_tag = "w"
answer_form = "tag"
colour = "red"
stop = 7
[arms.other]
scaffold = "mine"
"""


def said_of(text: str) -> list[str]:
    with pytest.raises(UserError) as raised:
        profile_of("mine.toml", text)
    first, *others = str(raised.value).splitlines()
    return others or [first]


def test_what_was_left_as_it_is_by_a_field_that_cannot_be_read_is_not_blamed() -> None:
    """Completions are as long as the demo's, which the file wanted other room for."""
    text = 'base = "demo"\n[hardware]\nmax_model_len = "16k"\n[final.sampling]\nmax_tokens = 5000\n'
    (line,) = said_of(text)
    assert "max_model_len" in line and "line 3" in line


def test_a_question_that_changes_nothing_is_none() -> None:
    (line,) = said_of('base = "demo"\n[questions.same]\npurpose = "nothing"\n')
    assert "line 2" in line and "changes nothing" in line


def test_a_problem_in_capitals_is_meant() -> None:
    (line,) = said_of(
        'base = "demo"\n[scaffolds.mine]\ntemplate = "{Problem} <answer>...</answer>"\nanswer_form = "tag"\n'
    )
    assert "did you mean {problem} by {Problem}?" in line


def test_a_question_is_not_blamed_for_what_its_study_does_not_say_rightly() -> None:
    """It writes more than the demo's room, where the file wanted more."""
    text = 'base = "demo"\n[hardware]\nmax_model_len = "16k"\n[questions.long]\nfinal.sampling.max_tokens = 5000\n'
    (line,) = said_of(text)
    assert "max_model_len" in line
    (line,) = said_of('base = "demo"\n[scaffolds.s]\nbase = "panel"\ncolour = 7\n[questions.q]\narms = ["s"]\n')
    assert "colour" in line


def test_objectives_of_an_arm_that_nobody_has_are_told_of_the_arm_alone() -> None:
    (line,) = said_of('base = "demo"\narms = ["nope"]\nobjectives = ["GRPO"]\n')
    assert "unknown arm 'nope'" in line


@pytest.mark.parametrize(
    ("wrong", "asked"),
    [
        ('[training]\ngroups_per_step = "16"\n', "training.minibatches = 16"),
        ('[training]\ngroup_size = "32"\nadvantage = "pass_at_k"\n', "training.advantage_k = 16"),
        ('[training]\nmax_tokens = "200"\n', "training.overlong_cache = 100"),
        ('[objectives.m]\nloss = "grpo"\nadvantge = "standardised"\n', "rollouts.temperature = 0.7"),
    ],
)
def test_what_hangs_together_is_not_told_of_a_question_beside_it(wrong: str, asked: str) -> None:
    said = said_of(f'base = "demo"\n{wrong}[questions.other]\n{asked}\n')
    assert not any("questions" in line for line in said), said
