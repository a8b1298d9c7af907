"""Prompts that people write are taken, and those that no completion could follow are refused at their place."""

import json

import pytest

from flows.study.files import written_out
from flows.study.request import profile_of
from storage.errors import UserError
from tasks.domain.scaffolds import Scaffold

EXAMPLE = '[[scaffolds.own.examples]]\nproblem = "What is 12 + 30?"\ntrace = "12+30=42."\nanswer = "42"\n'
#: TinyZero's and DeepSeek-R1-Zero's: the prompt itself opens the trace.
ZERO = "User: {problem} Think in <think> </think>, answer in <answer> </answer>.\nAssistant: Let me see.\n<think>"
TAGGED = "{problem} <think>..</think> <answer>..</answer>"


def own(template: str, more: str = "") -> Scaffold:
    head = 'base = "demo"\n[scaffolds.own]\nanswer_form = "tag"\ntrace_tag = "think"\n'
    head += f"template = {json.dumps(template)}\n"
    return profile_of("mine.toml", head + more).arm("own").scaffold


CHAT = """
base = "demo"
[scaffolds.own]
chat = true
answer_form = "boxed"
system = "Put the answer within <tag>."
messages = [
    {role = "user", content = "1+1?"},
    {role = "assistant", content = '\\boxed{2}'},
    {role = "user", content = "{problem}"},
]
"""


def test_a_chat_has_its_own_system_message_and_turns() -> None:
    scaffold = profile_of("mine.toml", CHAT).arm("own").scaffold
    assert scaffold.prompt("3+4?") == [
        {"role": "system", "content": "Put the answer within <tag>."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "\\boxed{2}"},
        {"role": "user", "content": "3+4?"},
    ]
    assert profile_of("mine.toml", written_out(profile_of("mine.toml", CHAT))).arm("own").scaffold == scaffold


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('content = "{problem}"', 'content = "go"', "messages: {problem} occurs 0 times"),
        ('"1+1?"', '"{problem}"', "messages: {problem} occurs 2 times"),
        ('"user", content = "{', '"assistant", content = "{', "the last message must be the user's"),
        ('"user", content = "1', '"teacher", content = "1', "messages.1.role"),
        ("chat = true", "chat = false", "chat: system and messages are parts of a chat"),
        ("chat = true", "chat = true\ntemplate = '{problem}!'", "messages are the whole prompt; leave out template"),
    ],
)
def test_a_chat_that_is_no_prompt_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        profile_of("mine.toml", CHAT.replace(old, new))
    assert said in str(refused.value)


STOP = "stop: {!r} ends a completion before its answer is written"


@pytest.mark.parametrize(
    ("template", "more", "said"),
    [
        ("answer in <answer>...</answer>", "", "template: {problem} occurs 0 times"),
        ("{problem} <answer>..</answer>", "", "template: it never shows </think>"),
        ("2 \times 3" + TAGGED, "", "after '2 ' comes the character '\\t' instead of a LaTeX command"),
        (TAGGED, "trace_opened = true", "trace_opened: nothing opens the trace"),
        (ZERO, "", "template: it ends in an opening tag"),
        *((TAGGED, f"stop = [{stop!r}]", STOP.format(stop)) for stop in (".", ", ", "e", "$", "sqrt", "<answer>")),
    ],
)
def test_what_no_completion_could_follow_is_refused(template: str, more: str, said: str) -> None:
    with pytest.raises(UserError, match=r"^mine\.toml, line \d: scaffolds\.own\.") as refused:
        own(template, more)
    assert said in str(refused.value)


def test_a_prompt_may_open_the_trace_where_it_says_so() -> None:
    scaffold = own(ZERO, "trace_opened = true\n" + EXAMPLE)
    parsed = scaffold.parse("2+2=4.</think>\n<answer>4</answer>")
    assert (parsed.trace, parsed.region, parsed.tag_valid) == ("2+2=4.", "4", True)
    assert scaffold.parse("so <answer>5</answer> is wrong, let me").region is None, "its reasoning never ended"
    assert "<think>12+30=42.</think> <answer>42</answer>" in scaffold.prompt("1+1?")
    assert scaffold.prompt_text("1+1?").endswith("<think>")
