"""What a newcomer's files got wrong and were told nothing of, or too late: after a pool was built, or as a path."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.study.request import Request, profile_of, text_of
from flows.study.set_option import overridden
from storage.artifacts.store import Store
from storage.errors import UserError

TEMPLATE = 'template = "{problem} <w>...</w> <answer>...</answer>"\ntrace_tag = "w"\nanswer_form = "tag"\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[pool]\nsynthetic = 4\nheldout_per_source = 4", 4, "all 4 problems of a source would be held out"),
        ("[pool]\nheldout_per_source = 0", 3, "nothing would be held out"),
        ("[pool]\nsources = ['math500']\nheldout_per_source = 0", 4, "nothing would be held out"),
        ("[pool]\nsources = ['aime24', 'amc', 'aime24']", 3, "aime24 stands there more than once"),
        ("[benchmarks.twice]\nsources = ['amc', 'amc']\ngroup_size = 2", 3, "amc stands there more than once"),
        ("[training]\ntarget_modules = ['q_proj', 'q_proj']", 3, "q_proj stands there more than once"),
        (
            "[lessons.easy]\narms = ['panel']\npool = { synthetic = 8, heldout_per_source = 2 }\nrollouts = { max_tokens = 8 }\n[lessons.easy.training]\nsteps = 1\n"
            "groups_per_step = 1\ngroup_size = 2\nlearning_rate = 1e-3\nlora_rank = 3\nlora_alpha = 8",
            0,
            "the adapter of lesson easy, which has lora_rank=3 and not",
        ),
        ("model = ''", 2, "model: it is empty"),
        ("[encoder]\nname = ' '", 3, "encoder.name: it is empty"),
        (f"[scaffolds.'a/..']\n{TEMPLATE}", 2, "'a/..' is no name"),
        ("[arms.panel]\n[arms.'../x']\nscaffold = 'panel'", 3, "'../x' is no name"),
        ("[questions.'a b']\ntraining.steps = 3", 2, "'a b' is no name"),
        ("[matrix]\ntraining.steps = []", 2, "its lists make 0 questions"),
        ("[matrix]\ntraining.steps = [3, 4, 3]", 3, "3 stands there more than once"),
        (
            f"[matrix]\ntraining.steps = {[*range(1, 18)]}\npool.seed = {[*range(16)]}",
            2,
            "272 questions; 1 to 256 are possible",
        ),
        ("[questions.seeds]\ntraining.steps = 3", 2, "'seeds' is a question of every study"),
        ("objectives = ['MaxRL', 'GRPO', 'MaxRL']", 2, "MaxRL stands there more than once"),
        ("benchmarks = ['aime', 'aime']", 2, "aime stands there more than once"),
        ("objectives = ['GRPO']\n[objectives.own]\nadvantage = 'max_rl'", 0, "exclude each other"),
        (f"x = {'[' * 2000}{']' * 2000}", 0, "maximum recursion depth"),
        (f"[scaffolds.none]\n{TEMPLATE}", 2, "'none' is no name"),
        ("[arms.panel]\n[arms.None]\nscaffold = 'panel'", 3, "'None' is no name"),
        ('[questions."a\\nb"]\ntraining.steps = 3', 2, r"'a\nb' is no name"),
        (f"[scaffolds.own]\n{TEMPLATE}enable_thinking = true", 6, "chat is false"),
        (f"[scaffolds.own]\n{TEMPLATE}stop = ['1']", 6, "'1' ends a completion before its answer is written"),
        (f"[scaffolds.own]\n{TEMPLATE}stop = ['</answer']", 6, "before its last tag is closed"),
        (f"[scaffolds.own]\n{TEMPLATE}stop = ['.']", 6, "'.' ends a completion before its answer is written"),
        (f"[scaffolds.own]\n{TEMPLATE}trace_opened = true", 6, "a chat template opens the tag, and chat is false"),
        (f"[scaffolds.own]\n{TEMPLATE}base = ['panel']", 6, "no scaffold '['panel']'"),
        *(
            (f"[scaffolds.own]\n{TEMPLATE}stop = [{stop!r}]", 6, "ends a completion before its answer is written")
            for stop in ("$", "%", "*", ":", "pi", "sqrt", "!")
        ),
        ("[benchmarks.'../x y']\nsources = ['amc']\ngroup_size = 2", 2, "'../x y' is no name"),
        ("learning_rate = 1e-3", 2, "did you mean training.learning_rate?"),
        (
            "temperature = 1",
            2,
            "mean screening.sampling.temperature or rollouts.temperature or evaluation.sampling.temp",
        ),
        ("[training]\nadvantage = 'centered'", 3, "unknown advantage 'centered'; did you mean 'centred'?"),
        ("[training]\nlearning_rate = inf", 3, "learning_rate is inf; it must be a finite number"),
        (f"[training]\nsteps = {2**70}", 3, "it must be less than or equal to 1000000"),
        ("seeds = [-1]", 2, "it must be greater than or equal to 0"),
        ("name = 'demo'", 2, "'demo' is a built-in profile's name"),
        ("name = 'report'", 2, "'report' could be taken for an artifact or a run"),
        ("name = 's-763d061a'", 2, "'s-763d061a' could be taken for an artifact or a run"),
        ("name = 'report-0123456789abcdef'", 2, "could be taken for an artifact or a run"),
        ('name = "a\\nb"', 2, r"'a\nb' is no name"),
    ],
)
def test_is_refused_with_its_line_when_the_file_is_read(text: str, line: int, said: str) -> None:
    with pytest.raises(UserError) as raised:
        profile_of("mine.toml", f'base = "demo"\n{text}')
    assert (
        (f"line {line}: " in str(raised.value) or not line)
        and said in str(raised.value)
        and "\n" not in str(raised.value)
    )


def scaffold_text(template: str, stop: str, more: str = "") -> str:
    return (
        f'base = "demo"\n[scaffolds.own]\ntemplate = {json.dumps(template)}\ntrace_tag = "w"\nanswer_form = "tag"\n'
        f"stop = [{json.dumps(stop)}]\n{more}"
    )


LAID_OUT = "{problem} Write <w>work</w>\n<answer>answer</answer>"
ONE_LINE = "{problem}\nWrite <w>work</w> <answer>answer</answer>\n"
EXAMPLE = 'examples = [{ problem = "1 + 1?", trace = "so\\nit is", answer = "2" }]'


def test_a_stop_that_any_reasoning_holds_is_refused() -> None:
    """Where no tag sets it apart and no example shows how long it is."""
    free = (
        'base = "demo"\n[scaffolds.own]\ntemplate = "{problem} Reason, then <answer>a</answer>"\nanswer_form = "tag"\n'
    )
    for stop in (".", " ", ", ", ":", "?", "=", "e"):
        with pytest.raises(UserError, match=r"line 5: scaffolds\.own\.stop: .* ends a completion before its answer"):
            profile_of("mine.toml", f'{free}stop = ["{stop}"]\nanswer_kind = "exact_text"\n')
    assert profile_of("mine.toml", f'{free}stop = ["\\n\\n", "Question:", "###"]\nanswer_kind = "exact_text"\n')


def test_latex_that_toml_read_as_something_else_is_no_prompt() -> None:
    """Tabs, form feeds, backspaces and lines: as typed between double quotes, and sampled so."""
    form = "{problem} <w>..</w> <answer>..</answer>"
    for typed in (
        r"2 \times 3",
        r"\frac{1}{2}",
        r"\boxed{7}",
        r"a \neq b",
        r"\rightarrow",
        r"\theta",
        r"x \to 0",
        r"\tan x",
        r"\tan(x)",
        r"x \ne 0",
    ):
        text = f'base = "demo"\n[scaffolds.own]\ntemplate = "{typed} {form}"\ntrace_tag = "w"\nanswer_form = "tag"\n'
        with pytest.raises(UserError, match=r"^mine\.toml, line 3: scaffolds\.own\.template: after .* single quotes"):
            profile_of("mine.toml", text)
    written = profile_of(
        "mine.toml", scaffold_text(rf"\times \frac{{1}}{{2}}\tone\t{form}\n\tan integer\ne.g. 3", "</answer>")
    )
    assert r"\frac" in written.arm("own").scaffold.template
    shown = 'examples = [{ problem = "\\frac{1}{2}?", trace = "so", answer = "2" }]'
    with pytest.raises(UserError, match=r"scaffolds\.own\.examples\.1: after '' stands the character '\\x0c'"):
        profile_of("mine.toml", scaffold_text(form, "</answer>", shown))


def test_a_mistake_in_the_second_of_several_examples_has_its_line() -> None:
    one = '[[scaffolds.own.examples]]\nproblem = "1 + 1?"\n{} = "so"\nanswer = "2"\n'
    text = scaffold_text(LAID_OUT, "</answer>", one.format("trace") + one.format("trac"))
    with pytest.raises(UserError) as raised:
        profile_of("mine.toml", text)
    assert "line 11: scaffolds.own.examples.2.trace: trace is missing" in str(raised.value)
    assert "line 13: scaffolds.own.examples.2.trac: no field 'trac'; did you mean 'trace'?" in str(raised.value)


def test_what_stands_in_braces_of_latex_is_no_gold() -> None:
    boxed = r"{problem} <w>..</w> Put it as \boxed{answer}. <answer>..</answer>"
    assert profile_of("mine.toml", scaffold_text(boxed, "</answer>"))
    with pytest.raises(UserError, match=r"\{answer\} would show the model what it is to find"):
        profile_of("mine.toml", scaffold_text(boxed.replace(r"\boxed", r"\boxed{answer} as "), "</answer>"))


def test_an_unclosed_tag_is_told_once() -> None:
    with pytest.raises(UserError, match=r"^mine\.toml, line 3: scaffolds.own.template: <w> is opened and never closed"):
        profile_of("mine.toml", scaffold_text("{problem} <w> <answer>a</answer>", "</answer>"))


def test_a_tag_that_closes_before_it_opens_never_closes() -> None:
    with pytest.raises(UserError, match=r"line 3: scaffolds.own.template: <w> is opened and never closed"):
        profile_of("mine.toml", scaffold_text("{problem} </w> or <w> <answer>a</answer>", "</answer>"))


def test_questions_of_a_matrix_of_prompts_are_called_by_their_number() -> None:
    """Words of a prompt are no words that anybody types, or that a run could be called by."""
    matrix = "[matrix]\nscaffolds.own.template = ['{problem}\\n<w>..</w> <answer>a</answer>', \"{problem} <w>..</w><answer>a</answer>\"]\n"
    text = scaffold_text(ONE_LINE, "</answer>", matrix)
    found = [profile_of(f"mine.toml/template=#{n}", text) for n in (1, 2)]
    assert found[0].arm("own") != found[1].arm("own") and found[0].called == "mine/template=#1"


def test_a_newline_ends_a_form_of_one_line() -> None:
    assert profile_of("mine.toml", scaffold_text(ONE_LINE, "\n"))


def test_a_set_that_is_for_evaluation_is_held_out_whole_beside_another() -> None:
    pool = "sources = ['gsm8k_train', 'math500']\nheldout_per_source = 0"
    assert profile_of("mine.toml", f'base = "demo"\n[pool]\n{pool}').pool.heldout_per_source == 0


def test_a_file_that_holds_no_problems_is_none_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root:x:0:0\n")
    asked = Request(profile="demo", settings=(f"pool.sources={tmp_path / 'passwd'}",))
    with pytest.raises(UserError, match=r"passwd is none of \.jsonl, \.json, \.ndjson, \.csv, \.parquet"):
        asked.study(Store(tmp_path / "root"))


def test_two_files_of_one_name_are_no_one_source(tmp_path: Path) -> None:
    """A split would hold out as much of both together as of one, and ids of rows would stand there twice."""
    for folder, word in (("a", "hens"), ("b", "goats")):
        (tmp_path / folder).mkdir()
        rows = ({"problem": f"{n} {word} and {n * n} more?", "gold": "3"} for n in range(9))
        (tmp_path / folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = 'base = "demo"\n[pool]\nsources = ["a/p.jsonl", "b/p.jsonl"]\nheldout_per_source = 2\n'
    asked = Request(profile=str(tmp_path / "mine.toml"), text=text)
    with pytest.raises(UserError, match=r"^mine\.toml, line 3: pool\.sources: several files are called p, and would"):
        asked.study(Store(tmp_path / "root"), planning=True)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "demo"\n', encoding="utf-8-sig")
    assert profile_of(str(path), text_of(str(path))).called == "mine"


def test_what_is_based_on_a_file_is_told_that_it_cannot_be() -> None:
    with pytest.raises(UserError, match=r"^mine\.toml, line 1: base: .*is a file NAME.toml, and no base of another"):
        profile_of("mine.toml", 'base = "other.toml"')


def test_a_file_that_is_not_in_utf_8_is_told_where(tmp_path: Path) -> None:
    (path := tmp_path / "mine.toml").write_bytes('base = "demo"\npurpose = "naïve"\n'.encode("latin-1"))
    with pytest.raises(UserError, match=r"^mine\.toml, line 2: it is not written in UTF-8"):
        text_of(str(path))


def test_a_question_changes_a_prompt_of_its_study_where_it_says_so() -> None:
    """What the question is silent about is as in the study's own scaffold; so is `--set`."""
    text = f'base = "demo"\narms = ["own"]\n[scaffolds.own]\n{TEMPLATE}[questions.whole.scaffolds.own]\nanswer_kind = "integer"\n'
    before, after = (profile_of(word, text).arm("own").scaffold for word in ("mine.toml", "mine.toml/whole"))
    assert after == replace(before, answer_kind="integer")
    assert overridden(profile_of("mine.toml", text), ["scaffolds.own.answer_kind=integer"]).arm("own").scaffold == after
