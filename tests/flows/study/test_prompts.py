"""Prompts that people write are taken, and those that no completion could follow are refused at their place."""

from __future__ import annotations

import json

import pytest

from flows.study.request import profile_of
from storage.errors import UserError
from tasks.domain.scaffolds import Scaffold
from tests.flows.study.test_all_at_once import said_of

EXAMPLE = '[[scaffolds.own.examples]]\nproblem = "What is 12 + 30?"\ntrace = "12+30=42."\nanswer = "42"\n'
#: TinyZero's and DeepSeek-R1-Zero's: the prompt itself opens the trace.
ZERO = "User: {problem} Think in <think> </think>, answer in <answer> </answer>.\nAssistant: Let me see.\n<think>"


def file_of(template: str, more: str = "", *, tag: str | None = "think", form: str = "tag") -> str:
    trace = f'trace_tag = "{tag}"\n' if tag else ""
    return f'base = "demo"\n[scaffolds.own]\nanswer_form = "{form}"\n{trace}template = {json.dumps(template)}\n{more}'


def own(text: str) -> Scaffold:
    return profile_of("mine.toml", text).arm("own").scaffold


@pytest.mark.parametrize(
    ("template", "stop", "tag", "form"),
    [
        (
            "User: Solve the problem and put the answer within <answer>...</answer> tags.\n{problem}\nAssistant: ",
            "User:",
            None,
            "tag",
        ),
        ("System: answer within \\boxed{}.\nUser: {problem}\n", "User:", None, "boxed"),
        ("Q: 2+2? A: \\boxed{4}\nQ: 3+3? A: \\boxed{6}\nQ: {problem} A:", "Q:", None, "boxed"),
        ("### Instruction: {problem} Put it within \\boxed{}.\n### Response: ", "### Instruction:", None, "boxed"),
    ],
)
def test_a_stop_at_the_next_turn_is_behind_the_answer(template: str, stop: str, tag: str | None, form: str) -> None:
    assert own(file_of(template, f"stop = [{json.dumps(stop)}]\n", tag=tag, form=form)).stop == (stop,)


def test_a_stop_that_an_example_writes_hides_its_answer() -> None:
    asked = EXAMPLE.replace("12+30=42.", "Q: what? it is 42")
    with pytest.raises(UserError, match="'Q:' ends a completion before its answer"):
        own(file_of("Q: {problem} <think>..</think> <answer>..</answer>", 'stop = ["Q:"]\n' + asked))


@pytest.mark.parametrize(("trace", "answer"), [("", "42"), ("a</think> b", "42"), ("a", "<answer>3</answer>")])
def test_examples_of_a_trace_that_the_prompt_opens_are_in_form_too(trace: str, answer: str) -> None:
    one = f"[[scaffolds.own.examples]]\nproblem = '1?'\ntrace = '{trace}'\nanswer = '{answer}'\n"
    with pytest.raises(UserError, match=r"examples\.1: example 1 is not in the scaffold's own form"):
        own(file_of(ZERO, "trace_opened = true\n" + one))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('template = "{problem} put in \\\\boxed{}"\nanswer_form = "box"\nstop = ["</s>"]\n', "answer_form"),
        (
            'template = "{problem} <answer>..</answer>"\nanswer_form = "tag"\nchatt = true\nenable_thinking = true\n',
            "chatt",
        ),
        (
            f'template = {json.dumps(ZERO)}\nanswer_form = "tag"\ntrace_tag = "think"\ntrace_openedd = true\n',
            "trace_openedd",
        ),
    ],
)
def test_what_hangs_on_a_field_that_cannot_be_read_is_not_blamed(text: str, field: str) -> None:
    (line,) = said_of(f'base = "demo"\n[scaffolds.own]\n{text}')
    assert f"scaffolds.own.{field}: " in line


def test_examples_show_how_an_answer_is_laid_out() -> None:
    """And not the lines of the instruction, which no completion writes."""
    asked = (
        "Reason within <think>...</think> tags.\n\nGive it within <answer>...</answer> tags.\n\nProblem: {problem}\n"
    )
    assert own(file_of(asked, 'stop = ["\\n\\n"]\n' + EXAMPLE)).stop == ("\n\n",)
    with pytest.raises(UserError, match=r"scaffolds\.own\.stop: '\.' ends a completion before its answer"):
        own(file_of(asked, 'stop = ["."]\n' + EXAMPLE))


@pytest.mark.parametrize(
    "words",
    ["passo a passo\ne a resposta", "passi\ne i passi", "Steps:\n\to Step one", "prix:\tau lieu", "is\tan n-gon"],
)
def test_words_of_other_languages_and_bullets_are_no_latex(words: str) -> None:
    assert words in own(file_of(f"{words} {{problem}} <think>..</think> <answer>..</answer>")).template


def test_a_prompt_may_open_the_trace_where_it_says_so() -> None:
    with pytest.raises(UserError, match=r"line 5: .*it ends in <think>, .* set trace_opened = true"):
        own(file_of(ZERO))
    scaffold = own(file_of(ZERO, "trace_opened = true\n" + EXAMPLE))
    parsed = scaffold.parse("2+2=4.</think>\n<answer>4</answer>")
    assert (parsed.trace, parsed.region, parsed.tag_valid) == ("2+2=4.", "4", True)
    assert scaffold.parse("so <answer>5</answer> is wrong, let me").region is None, "its reasoning never ended"
    assert "<think>12+30=42.</think> <answer>42</answer>" in scaffold.prompt("1+1?")
    assert scaffold.prompt("1+1?").endswith("<think>")
    with pytest.raises(UserError, match="a chat template opens the tag, and chat is false"):
        own(file_of("{problem} <think>..</think> <answer>..</answer>", "trace_opened = true\n"))


def test_an_answer_that_the_prompt_opens_is_never_read() -> None:
    with pytest.raises(UserError, match="it ends in <answer>, which no completion would then write"):
        own(file_of("Use <answer></answer>. {problem} The answer is <answer>", tag=None))


def test_a_mistake_of_an_example_is_told_at_that_example() -> None:
    (line,) = said_of(file_of(ZERO, "trace_opened = true\n" + EXAMPLE + EXAMPLE.replace("12+30=42.", "a\\ftwo")))
    assert "line 11: scaffolds.own.examples.2: after 'a' stands the character" in line


def test_a_scaffold_may_be_based_on_one_that_stands_below_it() -> None:
    """The order of tables is none of a study's content."""
    below = '[scaffolds.a]\ntemplate = "{problem} <answer>..</answer>"\nanswer_form = "tag"\n'
    above = '[scaffolds.b]\nbase = "a"\nstop = ["</answer>"]\n'
    found = [profile_of("mine.toml", f'base = "demo"\n{text}').arm("b") for text in (above + below, below + above)]
    assert found[0] == found[1] and found[0].scaffold.stop == ("</answer>",)
    (line,) = said_of(f'base = "demo"\n{above}{below.replace("{problem}", "")}')
    assert "line 6: scaffolds.a.template" in line, "and the other is not said to be based on nothing"
    arms = '[arms.panel]\n[arms.mine]\nscaffold = "b"\n'
    (line,) = said_of(f'base = "demo"\n{above}{below.replace("{problem}", "")}{arms}')
    assert "scaffolds.a.template" in line, "and the arm is not said to have none"


def test_a_scaffold_that_is_based_on_itself_is_refused() -> None:
    (line,) = said_of('base = "demo"\n[scaffolds.a]\nbase = "a"\nanswer_form = "tag"\n')
    assert line == "mine.toml, line 3: scaffolds.a.base: 'a' is based on itself, or on one that is"
    (line,) = said_of(
        'base = "demo"\n[scaffolds.b]\nbase = "a"\n[scaffolds.a]\nbase = "panel"\n[scaffolds.None]\nbase = "panel"\n'
    )
    assert "scaffolds.None.name: 'None' is no name" in line


@pytest.mark.parametrize(
    "text", ['[questions.a]\nseeds = [0]\n"seeds.x" = 1', '[matrix]\n"pool.seed" = [1]\npool = [3]']
)
def test_a_path_through_a_value_is_a_sentence(text: str) -> None:
    (line,) = said_of(f'base = "demo"\n{text}\n')
    assert line.startswith("mine.toml, line 4: ")
