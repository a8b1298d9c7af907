"""Scaffolds and arms that a study defines itself: read from its tables, and what a model could not follow refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from flows.study.reading import NAME, NONE, UNNAMED, Reading, twice, without
from storage.errors import UserError, did_you_mean
from tasks.domain import plugins
from tasks.domain.arms import ARMS, Arm
from tasks.domain.grading import kinds
from tasks.domain.ranges import Ranged
from tasks.domain.scaffolds import MATH, SCAFFOLDS, Scaffold

TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
OPENED = re.compile(r"<([A-Za-z][A-Za-z0-9_-]*)>")
PROBLEM = "{problem}"
#: What a prompt may never be given.
SECRET = re.compile(r"\{(gold|answer|solution)\}")
#: An answer that a sound completion commits to, whatever stops it.
PROBE = "7"
#: What stands in answers of a kind beside digits.
WRITTEN = {
    MATH: ("-2", "3.5", "1,000", "(x, y)", "[0]", r"\\frac{1}{x^2}", "a+b=c", r"$2*\sqrt{\pi}$", "50%", "3:2", "5!"),
    "integer": ("-2", "1,000"),
    "multiple_choice": tuple("ABCDEFGHIJ"),
}
SCAFFOLD = ("scaffolds",)
NULL = "stands for null, where arms are named; call it otherwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTable(Ranged):
    """`[arms.NAME]`. scaffold, trained_as: as the arm itself is called, where they are not given; trained_as none: it
    is evaluated as it is. model, adapter: empty for the study's, and for none."""

    name: str
    scaffold: str = ""
    trained_as: str | None = ""
    model: str = ""
    adapter: str = ""

    @classmethod
    def of(cls, arm: Arm | None) -> ArmTable | None:
        return None if arm is None else cls(**(told_of(arm) | {"name": arm.name}))


def told_of(arm: Arm) -> dict[str, Any]:
    """An arm's fields but its name, the scaffold by its name."""
    return {f.name: getattr(arm, f.name) for f in fields(arm) if f.name != "name"} | {"scaffold": arm.scaffold.name}


def own_arms(
    tables: Mapping[str, Any], base: Mapping[str, Arm], scaffolds: Mapping[str, Scaffold], reading: Reading
) -> dict[str, Arm]:
    """Arms of tables, and one for each own scaffold that none of them has: under its name, training its own adapter.
    base: those that the study has already, which a table changes, as it does everybody's but for their prompt."""
    known, arms = {**SCAFFOLDS, **scaffolds}, dict(base)
    for name, table in tables.items():
        path = ("arms", name)
        if not NAME.fullmatch(name) or name.lower() == NONE:
            reading.refuse(path, f"{name[:80]!r} {UNNAMED if name.lower() != NONE else NULL}")
            continue
        if name in ARMS and isinstance(table, Mapping) and "scaffold" in table:
            reading.refuse((*path, "scaffold"), f"'{name}' is everybody's arm already; give yours another name")
            continue
        asked = reading.named(ArmTable, name, table, ArmTable.of(arms.get(name, ARMS.get(name))), path[:1])
        if asked is None:
            continue
        worded = asked.scaffold or name
        if worded not in known and (*SCAFFOLD, worded) in {fault.path[:2] for fault in reading.faults}:
            continue  # it is there, and what is wrong with it is told
        if worded not in known:
            hint = did_you_mean(worded, known)
            reading.refuse((*path, "scaffold"), f"no scaffold '{worded}'{hint} (known: {', '.join(known)})")
            continue
        trained_as = name if asked.trained_as == "" else asked.trained_as
        made = Arm(name=name, scaffold=known[worded], trained_as=trained_as, model=asked.model, adapter=asked.adapter)
        if made != ARMS.get(name):
            arms[name] = made
        elif name in arms:
            del arms[name]
    used = {arm.scaffold.name for arm in arms.values()}
    alone = (Arm(name=name, scaffold=s, trained_as=name) for name, s in scaffolds.items() if name not in used)
    return arms | {arm.name: arm for arm in alone if arm.name not in arms}


def own_scaffolds(tables: object, before: Mapping[str, Scaffold], reading: Reading) -> dict[str, Scaffold]:
    """By name. `base` is the scaffold whose fields hold where a table is silent; without one it is that of the same
    name in `before`, those that the study has already."""
    found: dict[str, Scaffold] = {}
    if not isinstance(tables, Mapping):
        reading.refuse(SCAFFOLD, f"{tables!r} is no table, written [scaffolds.NAME]")
        return found
    for name, table in tables.items():
        path, known = (*SCAFFOLD, name), {**SCAFFOLDS, **before, **found}
        asked = dict(table) if isinstance(table, Mapping) else table
        base = asked.pop("base", None) if isinstance(asked, dict) else None
        if not NAME.fullmatch(name) or name.lower() == NONE:
            reading.refuse(path, f"{name[:80]!r} {UNNAMED if name.lower() != NONE else NULL}")
        elif name in SCAFFOLDS:
            reading.refuse(path, f"'{name}' is everybody's scaffold already; give yours another name")
        elif base is not None and str(base) not in known:
            hint = did_you_mean(str(base), known)
            reading.refuse((*path, "base"), f"no scaffold '{base}'{hint} (known: {', '.join(known)})")
        else:
            old = known[str(base)] if base is not None else before.get(name)
            if isinstance(asked, dict) and old is None:
                asked.setdefault("trace_tag", "none")
            if isinstance(asked, dict) and asked.get("code") and (asked := _with_code(asked, path, reading)) is None:
                continue
            before_it = len(reading.faults)
            made = reading.named(Scaffold, name, asked, old, path[:1])
            unread = reading.faults[before_it:]
            if unread and isinstance(asked, dict):  # what else is wrong is told with it
                made = Reading(hidden=reading.hidden).named(Scaffold, name, without(asked, unread, path), old, path[:1])
            made, faults = (None, []) if made is None else _checked(made)
            for field, said in faults:
                if (*path, field) not in [fault.path for fault in unread]:
                    reading.refuse((*path, field), said)
            if made is not None and not faults and not unread:
                found[name] = made
    return found


def _with_code(asked: dict[str, Any], path: tuple[str, str], reading: Reading) -> dict[str, Any] | None:
    """A table with what the code of another package says where it is silent, the code named with its version; null
    where there is something wrong."""
    try:
        code = plugins.pinned("varband.scaffolds", str(asked["code"]))
        own = plugins.plugged("varband.scaffolds", code)
    except UserError as error:
        return reading.refuse((*path, "code"), str(error))
    if hasattr(own, "parse") != hasattr(own, "solved"):
        said = f"{code} has only one of `parse` and `solved`: what is taken apart must be what is written"
        return reading.refuse((*path, "code"), said)
    try:
        fields = getattr(own, "fields", {})
    except (Exception, SystemExit) as error:  # a property of others' may raise anything
        return reading.refuse((*path, "code"), f"scaffold {code}: `fields` raises {plugins.told(error)}")
    if not isinstance(fields, Mapping):
        return reading.refuse((*path, "code"), f"scaffold {code}: `fields` is {fields!r:.60}, which is no table")
    return {"template": PROBLEM, **fields, **asked, "code": code}


def _checked(made: Scaffold) -> tuple[Scaffold | None, list[tuple[str, str]]]:
    """With its answer kind as recipes hold it, and what is wrong with it."""
    try:
        made = replace(made, answer_kind=kinds.pinned(made.answer_kind))
        kinds.check(made.answer_kind)
    except UserError as error:
        return None, [("answer_kind", str(error))]
    try:
        return made, list(faults_of(made))
    except UserError as error:  # of the code that it brings
        return None, [("code", str(error))]


def faults_of(scaffold: Scaffold) -> Iterator[tuple[str, str]]:
    """What no model could follow, or would hide its answer: the field, and what is wrong with it."""
    s, template = scaffold, scaffold.template
    if template.count(PROBLEM) != 1:
        meant = re.search(r"\{ *problem *\}", template, re.I) if PROBLEM not in template else None
        hint = f"; did you mean {PROBLEM} by {meant[0]}?" if meant else ""
        said = f"{PROBLEM} stands there {template.count(PROBLEM)} times; the problem goes where it stands, once{hint}"
        yield "template", said
    if secret := SECRET.search(template):
        yield "template", f"{secret[0]} would show the model what it is to find; only {PROBLEM} is put in"
    if s.trace_tag is not None and (not TAG.fullmatch(s.trace_tag) or s.trace_tag == "answer"):
        yield "trace_tag", f"{s.trace_tag!r} is no name of a tag; write it without brackets, and not 'answer'"
        return
    if s.enable_thinking and not s.chat:
        yield ("enable_thinking", "a chat template thinks, and chat is false; say chat = true, or leave it out")
    for stop in twice(s.stop):
        yield "stop", f"{stop!r} stands there more than once"
    if s.trace_opened and s.trace_tag is None:
        yield "trace_opened", "there is no trace_tag that could be opened"
    elif s.trace_opened and not s.chat:
        yield "trace_opened", "a chat template opens the tag, and chat is false; say chat = true, or leave it out"
    if s.code and not s.prompt(PROBE) == s.prompt(PROBE) != s.prompt(PROBE * 2):
        yield "code", f"scaffold {s.code}: `prompt` must say each problem in words of its own, the same each time"
    yield from _unclosed(s)
    yield from _unreadable(s)


def _unclosed(s: Scaffold) -> Iterator[tuple[str, str]]:
    for tag in dict.fromkeys(OPENED.findall(s.template)):
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


def _shown_forms(s: Scaffold) -> list[str]:
    """What a completion writes before its answer is there, as the template lays it out and as examples have it."""
    answer = "<answer>" if s.answer_form == "tag" else r"\boxed{"
    opened, closed = (f"<{s.trace_tag}>", f"</{s.trace_tag}>") if s.trace_tag else ("", "")
    trace = rf"(?:{re.escape(opened)}(?:(?!{re.escape(opened)}).)*?)?{re.escape(closed)}" if opened else ""
    laid_out = re.findall(
        rf"{trace}\s*{re.escape(answer)}\s*" if trace else rf"{re.escape(answer)}\s*", s.template, re.S
    )
    solved = [s.answer_in_form(e.answer, e.trace) for e in s.examples] if not s.code else []
    ends = [text.rfind("</answer>" if s.answer_form == "tag" else "}") for text in solved]
    return [*laid_out, *(text[:end] for text, end in zip(solved, ends, strict=True))]


def _unreadable(s: Scaffold) -> Iterator[tuple[str, str]]:
    whole = s.answer_in_form(PROBE).removeprefix(f"<{s.trace_tag}>" if s.trace_opened else "")
    in_answers = () if s.code else WRITTEN.get(s.answer_kind, ())  # how answers are written is known to who reads them
    for stop in s.stop:
        until = whole[: whole.find(stop) + len(stop)] if stop and stop in whole else whole
        hides = not stop or stop.isdecimal() or any(stop in text for text in (*in_answers, *_shown_forms(s)))
        if hides or PROBE not in (s.parse(until).region or ""):
            yield "stop", f"{stop!r} ends a completion before its answer is written; let it stand behind the answer"
        elif s.parse(whole).tag_valid and not s.parse(until).tag_valid:
            yield (
                "stop",
                f"{stop!r} ends a completion before its last tag is closed: none would be in the form asked for",
            )
    for place, example in enumerate(s.examples, 1):
        if not example.problem.strip():
            yield "examples", f"example {place} has no problem"
        elif not s.trace_opened and not s.parse(s.answer_in_form(example.answer, example.trace)).tag_valid:
            yield (
                "examples",
                f"example {place} is not in the scaffold's own form: trace or answer is empty or has tags",
            )
        elif said := kinds.faults_of_answer(s.answer_kind, example.answer):
            yield "examples", f"example {place}: its answer {said}"
