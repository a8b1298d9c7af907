"""What no model could follow in a scaffold of a study's own, or what would hide its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flows.study.reading import twice
from tasks.domain import plugins
from tasks.domain.grading import kinds
from tasks.domain.scaffolds import MATH, Example, Scaffold

TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
OPENED = re.compile(r"<([A-Za-z][A-Za-z0-9_-]*)>")
#: What opens and never closes in markup and in prompts of models as they are published.
LONE = frozenset(
    {"s", "br", "hr", "p", "li", "bos", "begin_of_text", "start_of_turn", "end_of_turn", "eos", "end_of_text"}
)
PROBLEM = "{problem}"
#: What a prompt may never be given; after a command of LaTeX it stands for what the model is to write.
SECRET = re.compile(r"(\\[A-Za-z]+)?(\{(?:gold|answer|solution)\})")
#: What TOML's quotes make of LaTeX: \boxed, \frac, \times, \theta, \text, \to, \tan, \rightarrow, \neq, \ne.
UNESCAPED = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\n(?=eq\b(?!\.)|abla\b|otin\b|leq\b|geq\b)"
    r"|(?<=[ $])\n(?=e(?: ?-?\d| [a-z]\b(?!\.)))"
    r"|\t(?=imes|heta|ext\b|ext(?:bf|it|rm)\b|riangle|ilde\b|au\b(?! \w\w)|frac(?!tion)|binom)"
    r"|(?<=\S )\t(?=o\b)|(?<=[A-Za-z0-9$})])\t(?=o [a-z0-9]\b)|\t(?=anh?(?:[({\\^_$\d]| [a-z]\b(?!-)))"
)
LITERAL = "write it between single quotes ('…' or '''…'''), where a backslash is one"
#: What completions write before an answer that no tag sets apart from it.
PROSE = """First, let x be a number (say 12): then 2x = 24 - it's "even". Why? So the answer is that!"""
#: An answer that a sound completion commits to, whatever stops it.
PROBE = "7"
#: What stands in answers of a kind beside digits.
WRITTEN = {
    MATH: ("-2", "3.5", "1,000", "(x, y)", "[0]", r"\\frac{1}{x^2}", "a+b=c", r"$2*\sqrt{\pi}$", "50%", "3:2", "5!"),
    "integer": ("-2", "1,000"),
    "multiple_choice": tuple("ABCDEFGHIJ"),
}


def faults_of(scaffold: Scaffold) -> Iterator[tuple[str, str]]:
    """What no model could follow, or would hide its answer: the field, and what is wrong with it."""
    s, template = scaffold, scaffold.template
    if template.count(PROBLEM) != 1:
        meant = re.search(r"\{ *problem *\}", template, re.I) if PROBLEM not in template else None
        hint = f"; did you mean {PROBLEM} by {meant[0]}?" if meant else ""
        said = f"{PROBLEM} stands there {template.count(PROBLEM)} times; the problem goes where it stands, once{hint}"
        yield "template", said
    shown = [(f"examples.{place}", words) for place, one in enumerate(s.examples, 1) for words in _words(one)]
    for field, words in (("template", template), *shown):
        if control := UNESCAPED.search(words):
            before = words[: control.start()].split("\n")[-1][-20:]
            yield field, f"after {before!r} stands the character {control[0]!r}, no LaTeX: {LITERAL}"
    if secret := next((found[2] for found in SECRET.finditer(template) if not found[1]), None):
        yield "template", f"{secret} would show the model what it is to find; only {PROBLEM} is put in"
    if s.trace_tag is not None and (not TAG.fullmatch(s.trace_tag) or s.trace_tag == "answer"):
        yield "trace_tag", f"{s.trace_tag!r} is no name of a tag; write it without brackets, and not 'answer'"
        return
    if s.enable_thinking and not s.chat:
        yield ("enable_thinking", "a chat template thinks, and chat is false; say chat = true, or leave it out")
    for stop in twice(s.stop):
        yield "stop", f"{stop!r} stands there more than once"
    if s.trace_opened and s.trace_tag is None:
        yield "trace_opened", "there is no trace_tag that could be opened"
    elif s.trace_opened and not s.chat and not s.ends_opened:
        said = (
            f"a chat template opens the tag, and chat is false; say chat = true, or let template end in <{s.trace_tag}>"
        )
        yield "trace_opened", said
    elif s.ends_opened and not s.trace_opened and not s.chat:
        yield "template", f"it ends in <{s.trace_tag}>, which completions then only close; say trace_opened = true"
    for opened in ("<answer>", r"\boxed{"):
        if not s.chat and template.rstrip().endswith(opened):
            yield (
                "template",
                f"it ends in {opened}, which no completion would then write, and none be read; leave it out",
            )
    if s.code and not s.prompt(PROBE) == s.prompt(PROBE) != s.prompt(PROBE * 2):
        yield "code", f"scaffold {s.code}: `prompt` must say each problem in words of its own, the same each time"
    yield from _unclosed(s)
    yield from _unreadable(s)


def _words(example: Example) -> tuple[str, str, str]:
    return example.problem, example.trace, example.answer


def _unclosed(s: Scaffold) -> Iterator[tuple[str, str]]:
    for tag in (tag for tag in dict.fromkeys(OPENED.findall(s.template)) if tag not in LONE):
        closes = s.template.rfind(f"</{tag}>") > s.template.find(f"<{tag}>")
        if not closes and not (s.trace_opened and tag == s.trace_tag):
            yield "template", f"<{tag}> is opened and never closed: show </{tag}> too"
    shown, told = s.prompt(""), OPENED.findall(s.template)
    for tag in (tag for tag in s.pairs if tag not in told):
        native = s.chat and s.enable_thinking and tag == s.trace_tag
        if f"</{tag}>" not in shown and not native and not s.trace_opened:
            yield ("template", f"it never shows </{tag}>, by which completions are taken apart: none would close it")
    if s.answer_form == "boxed" and "\\boxed" not in shown:
        yield "template", "it never asks for \\boxed{}, in which the answer is looked for (answer_form = boxed)"


def _shown_forms(s: Scaffold, stop: str) -> list[str]:
    """What a completion writes before its answer is there, as examples have it, else as the template lays it out. stop:
    where the next problem begins with it, it stands in what is said before a problem too."""
    solved = [s.answer_in_form(e.answer, e.trace) for e in s.examples] if not s.code else []
    ends = [text.rfind("</answer>" if s.answer_form == "tag" else "}") for text in solved]
    if solved:
        return [text[:end] for text, end in zip(solved, ends, strict=True)]
    answer = re.escape("<answer>" if s.answer_form == "tag" else r"\boxed{")
    before, _, behind = s.template.partition(PROBLEM)
    # a few words on the line of the answer are written before it, as "Final answer: <answer>", and lines after a trace
    found = re.findall(rf"[^\n{{}}<>]*?{answer}\s*", behind)
    if not re.search(rf"(?:^|\n){re.escape(stop.strip())}[\s\d.:]*{re.escape(PROBLEM)}", s.template):
        found += re.findall(rf"[^\n{{}}<>]{{0,30}}{answer}\s*", before)
    if s.trace_tag:
        opened, closed = re.escape(f"<{s.trace_tag}>"), re.escape(f"</{s.trace_tag}>")
        inside = rf"(?:(?!{opened}|{closed}).)*?"
        found += re.findall(rf"(?:{opened}{inside})?{closed}[^{{}}<>]{{0,80}}?{answer}\s*", s.template, re.S)
    return found


def _reads_itself(s: Scaffold) -> bool:
    return bool(s.code) and hasattr(plugins.plugged("varband.scaffolds", s.code), "parse")


def _unreadable(s: Scaffold) -> Iterator[tuple[str, str]]:
    by_prompt = f"<{s.trace_tag}>" if s.trace_opened else ""
    whole = s.answer_in_form(PROBE).removeprefix(by_prompt)
    # how answers are written is known to who reads them
    in_answers = () if _reads_itself(s) else WRITTEN.get(s.answer_kind, ())
    before = () if s.code else (PROSE,)
    for stop in s.stop:
        until = whole[: whole.find(stop) + len(stop)] if stop and stop in whole else whole
        hides = (
            not stop or stop.isdecimal() or any(stop in text for text in (*in_answers, *before, *_shown_forms(s, stop)))
        )
        if hides or PROBE not in (s.parse(until).region or ""):
            yield "stop", f"{stop!r} ends a completion before its answer is written; let it stand behind the answer"
        elif s.parse(whole).tag_valid and not s.parse(until).tag_valid:
            yield (
                "stop",
                f"{stop!r} ends a completion before its last tag is closed: none would be in the form asked for",
            )
    for place, example in enumerate(s.examples, 1):
        if not example.problem.strip():
            yield f"examples.{place}", f"example {place} has no problem"
        elif not s.parse(s.answer_in_form(example.answer, example.trace).removeprefix(by_prompt)).tag_valid:
            said = f"example {place} is not in the scaffold's own form: trace or answer is empty or has tags"
            yield f"examples.{place}", said
        elif said := kinds.faults_of_answer(s.answer_kind, example.answer):
            yield f"examples.{place}", f"example {place}: its answer {said}"
