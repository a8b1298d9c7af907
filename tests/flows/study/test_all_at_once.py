"""All that is wrong with a file, said in one go: what can be looked at is, whatever else of it cannot be read."""

from __future__ import annotations

import pytest

from flows.study.asked import profile_asked
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
        profile_asked("mine.toml", text)
    first, *others = str(raised.value).splitlines()
    return others or [first]


def test_names_are_looked_up_beside_fields_that_cannot_be_read() -> None:
    said = said_of(WRONG.replace('arms = ["panel", "thinkin"]\n', ""))
    lines = [int(line.split("line ")[1].split(":")[0]) for line in said]
    assert lines == [2, 3, 5, 6, 8, 9, 11, 14, 15], said
    assert "{problem} stands there 0 times" in said[6]
    assert not any("no scaffold 'mine'" in line for line in said), "it is there, and told of"


def test_what_was_left_as_it_is_by_a_field_that_cannot_be_read_is_not_blamed() -> None:
    """Completions are as long as the demo's, which the file wanted other room for."""
    text = 'base = "demo"\n[hardware]\nmax_model_len = "16k"\n[final.sampling]\nmax_tokens = 5000\n'
    (line,) = said_of(text)
    assert "max_model_len" in line and "line 3" in line


def test_an_arm_that_nobody_has_is_told_beside_a_field_that_nobody_has() -> None:
    said = said_of('base = "demo"\narms = ["panel", "thinkin"]\nsedes = [0]\n')
    assert len(said) == 2 and "did you mean 'thinking'" in said[0] and "did you mean 'seeds'" in said[1]


def test_a_question_that_changes_nothing_is_none() -> None:
    (line,) = said_of('base = "demo"\n[questions.same]\npurpose = "nothing"\n')
    assert "line 2" in line and "changes nothing" in line


def test_a_problem_in_capitals_is_meant() -> None:
    (line,) = said_of(
        'base = "demo"\n[scaffolds.mine]\ntemplate = "{Problem} <answer>...</answer>"\nanswer_form = "tag"\n'
    )
    assert "did you mean {problem} by {Problem}?" in line


def test_questions_and_names_are_read_beside_a_prompt_that_no_model_could_follow() -> None:
    said = said_of(
        'base = "demo"\nmeasures = ["tokenz"]\nmodel = "a/b@main"\n[hardware]\nengine = "vlm"\n'
        '[scaffolds.s]\nbase = "panel"\nstop = ["<answer>"]\n[questions.q]\nrollouts.temperture = 1.0\n'
        "[matrix]\ntraining.stepz = [1, 2]\n"
    )
    assert [int(line.split("line ")[1].split(":")[0]) for line in said] == [2, 3, 5, 8, 10, 12], said


def test_a_question_is_not_blamed_for_what_its_study_does_not_say_rightly() -> None:
    """It writes more than the demo's room, where the file wanted more."""
    text = 'base = "demo"\n[hardware]\nmax_model_len = "16k"\n[questions.long]\nfinal.sampling.max_tokens = 5000\n'
    (line,) = said_of(text)
    assert "max_model_len" in line
    (line,) = said_of('base = "demo"\n[scaffolds.s]\nbase = "panel"\ncolour = 7\n[questions.q]\narms = ["s"]\n')
    assert "colour" in line


@pytest.mark.parametrize(
    "wrong",
    [
        'arms = ["nope"]\nobjectives = ["GRPO"]',
        'objectives = ["GRPO", "nope"]\narms = ["panel"]',
        'arms = ["panel"]\ntraining.steps = "x"',
        'arms = ["own"]\nscaffolds.own = 7',
    ],
)
def test_mistakes_of_questions_are_told_beside_tables_that_hang_together(wrong: str) -> None:
    text = f'base = "demo"\n{wrong}\n[questions.a]\nrollouts.temperture = 1.0\n[questions.b]\nseeds = ["x"]\n'
    first, *others = said_of(text)
    assert "questions" not in first and len(others) == 2, others
    assert "line 5: questions.a.rollouts.temperture" in others[0] and "line 7: questions.b.seeds" in others[1]


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
