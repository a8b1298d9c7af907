"""Scaffolds and arms that a study's tables define. A prompt that no model could follow, or that would hide the answer,
is an error before anything is sampled."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any

from pydantic.dataclasses import dataclass

from flows.study.reading import Fault, Tables, collected, merged, spelt, unknown, validated
from storage.errors import UserError
from tasks.domain import plugins
from tasks.domain.grading import kinds
from tasks.domain.ranges import Checked, Name, OrNone
from tasks.domain.scaffolds import ARMS, PROBLEM, SCAFFOLDS, Arm, Scaffold

#: What TOML's double quotes make of LaTeX commands (\boxed, \frac, \times, \rightarrow): characters that no prompt
#: contains.
UNESCAPED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|\t(?=imes|heta|ext\b)")
LITERAL = "write it between single quotes ('…' or '''…'''), where a backslash is one"
#: Typical text before the answer of a completion. Stop strings are tested on it.
PROSE = r"""First, let x (say 12): 2x = 24 - it's "even". Why? So it is -3.5, 1,026,784.9 [0] 50% $2*\sqrt{\pi}$!"""
#: The answer of the completions on which stop strings are tested.
PROBE = "7"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTable(Checked):
    """An arm of a study."""

    name: Name
    """Name of the arm; its table is `[arms.NAME]`."""
    scaffold: str = ""
    """Name of the scaffold. Empty: the name of the arm."""
    trained_as: Annotated[str | None, OrNone] = ""
    """Arm whose adapter this arm is evaluated with. Empty: its own. `none`: evaluated without training."""
    model: str = ""
    """Base model. Empty: the study's. `served:NAME`: a model that only a server of the OpenAI protocol has."""
    adapter: str = ""
    """LoRA adapter made elsewhere, from which training starts. Empty: none."""


def arm_table(arm: Arm) -> dict[str, Any]:
    """Return the table of an arm, without default values and without what a built-in arm has."""
    usual = ARMS.get(arm.name) or Arm(name=arm.name, scaffold=replace(arm.scaffold, name=arm.name), trained_as=arm.name)
    own, default = ({**spelt(one), "scaffold": one.scaffold.name} for one in (arm, usual))
    return {name: value for name, value in own.items() if value != default[name]}


def own_arms(base: Sequence[Arm], tables: Tables, scaffold_tables: Any, faults: list[Fault]) -> tuple[Arm, ...]:
    """Return the arms that a study defines or changes: those of its base, those of its tables, and one for each own
    scaffold without an arm. Such an arm has the scaffold's name and trains its own adapter."""
    if not isinstance(scaffold_tables, Mapping):
        faults.append(Fault(("scaffolds",), f"{scaffold_tables!r} is not a table; write [scaffolds.NAME]"))
        return ()
    own = _scaffolds([arm.scaffold for arm in base], scaffold_tables, faults)
    known, arms = SCAFFOLDS | own, dict[str, Arm]()
    for name, table in merged({arm.name: arm_table(arm) for arm in base}, tables).items():
        path, usual = ("arms", name), ARMS.get(name)
        if usual and isinstance(table, Mapping) and "scaffold" in table:
            faults.append(Fault((*path, "scaffold"), f"'{name}' is a built-in arm; give yours another name"))
            continue
        default = {"trained_as": spelt(usual.trained_as)} if usual else {}
        arm = validated(ArmTable, merged({**default, "name": name}, table), path, faults)
        if arm is None:
            continue
        scaffold = usual.scaffold if usual else known.get(arm.scaffold or name)
        if scaffold is None:
            if (arm.scaffold or name) not in scaffold_tables:  # otherwise the scaffold's own mistakes are reported
                faults += unknown((*path, "scaffold"), "scaffold", [arm.scaffold or name], known)
            continue
        trained_as = name if arm.trained_as == "" else arm.trained_as
        arms[name] = Arm(name=name, scaffold=scaffold, trained_as=trained_as, model=arm.model, adapter=arm.adapter)
    used = {arm.scaffold.name for arm in arms.values()}
    alone = {name: Arm(name=name, scaffold=s, trained_as=name) for name, s in own.items() if name not in used}
    return tuple(arm for arm in {**alone, **arms}.values() if arm != ARMS.get(arm.name))


def _scaffolds(base: Iterable[Scaffold], tables: Tables, faults: list[Fault]) -> dict[str, Scaffold]:
    """Return scaffolds by name, in order. In a table, `base` is the scaffold from which missing fields are taken: a
    built-in one, or one defined above. By default it is the study's own scaffold of that name, if any."""
    found = {one.name: one for one in base if one.name not in SCAFFOLDS}
    for place, (name, table) in enumerate(tables.items()):
        path, known = ("scaffolds", name), {**SCAFFOLDS, **found}
        above = str(table.get("base", name)) if isinstance(table, Mapping) else name
        if name in SCAFFOLDS:
            faults.append(Fault(path, f"'{name}' is a built-in scaffold; give yours another name"))
        elif not isinstance(table, Mapping):
            faults.append(Fault(path, f"{table!r} is no table"))
        elif above != name and above not in known:
            if above not in [*tables][:place]:  # otherwise the mistakes of its own table are reported
                faults += unknown((*path, "base"), "scaffold", [above], known)
        elif made := _scaffold(name, {k: v for k, v in table.items() if k != "base"}, known.get(above), faults):
            found[name] = made
    return found


def _scaffold(name: str, table: dict[str, Any], old: Scaffold | None, faults: list[Fault]) -> Scaffold | None:
    path, wrong, made = ("scaffolds", name), list[Fault](), None
    given = merged(spelt(old) if old else {"trace_tag": None}, table)
    if table.get("messages"):
        given = {**given, "template": PROBLEM, **table}
    with collected(wrong, *path, "code" if given.get("code") else "answer_kind"):  # errors of a plug-in or a grader
        if given.get("code"):
            given = _with_code(table, given)
        if found := validated(Scaffold, {**given, "name": name}, path, wrong):
            made = replace(found, answer_kind=kinds.pinned(found.answer_kind))
            kinds.check(made.answer_kind)
            wrong += [Fault((*path, *field.split(".")), words) for field, words in faults_of(made)]
    faults += wrong
    return None if wrong else made


def _with_code(table: Tables, given: dict[str, Any]) -> dict[str, Any]:
    """Return a table whose missing fields come from a plug-in, which is recorded with its version. Raise UserError if
    the plug-in does not define a scaffold."""
    code = plugins.pinned("varband.scaffolds", str(given["code"]))
    own = plugins.plugged("varband.scaffolds", code)
    if hasattr(own, "parse") != hasattr(own, "solved"):
        raise UserError(f"{code} has only one of `parse` and `solved`: define both or neither")
    default = {"template": PROBLEM, **getattr(own, "fields", {})}
    if hasattr(own, "prompt") and table.get("template", default["template"]) != default["template"]:
        raise UserError(f"scaffold {code}: its code writes the prompts; remove the template")
    return {**given, **default, **table, "code": code}


def faults_of(s: Scaffold) -> Iterator[tuple[str, str]]:
    """Yield each field that makes a prompt impossible to follow or hides the answer, with the reason."""
    template = s.template
    written = [(f"messages.{n}", one.content) for n, one in enumerate(s.messages, 1)] or [("template", template)]
    written += [("system", s.system)] if s.system else []
    if (times := sum(text.count(PROBLEM) for _, text in written)) != 1:
        place = written[0][0].split(".")[0]
        yield place, f"{PROBLEM} occurs {times} times; write it once, where the problem's text goes"
    if (s.messages or s.system is not None) and not s.chat:
        yield "chat", "system and messages are parts of a chat; set chat = true"
    if s.messages and (template != PROBLEM or s.examples):
        yield "messages", "messages are the whole prompt; leave out template and examples"
    if s.messages and (s.messages[-1].role != "user" or "system" in [m.role for m in s.messages]):
        yield "messages", "the last message must be the user's; the system message goes into system"
    examples = [(f"examples.{n}", getattr(one, f.name)) for n, one in enumerate(s.examples, 1) for f in fields(one)]
    for field, words in (*written, *examples):
        if control := UNESCAPED.search(words):
            before = words[: control.start()].split("\n")[-1][-20:]
            yield field, f"after {before!r} comes the character {control[0]!r} instead of a LaTeX command: {LITERAL}"
    if s.trace_opened and not (s.trace_tag and (s.chat or s.ends_opened)):
        yield (
            "trace_opened",
            "nothing opens the trace; set trace_tag, and set chat = true or end template with the opening tag",
        )
    if not s.chat and ((s.ends_opened and not s.trace_opened) or template.rstrip().endswith(("<answer>", r"\boxed{"))):
        yield "template", "it ends in an opening tag; if that is the trace_tag, set trace_opened = true"
    if s.code and not s.prompt(PROBE) == s.prompt(PROBE) != s.prompt(PROBE * 2):
        yield (
            "code",
            f"scaffold {s.code}: `prompt` must return another text for each problem, and the same text each time",
        )
    yield from _unclosed(s)
    yield from _unreadable(s)


def _unclosed(s: Scaffold) -> Iterator[tuple[str, str]]:
    """Yield a mistake if the prompt does not show how completions mark their trace or answer."""
    written_prompt, opened = s.prompt_text(""), s.trace_opened or (s.chat and s.enable_thinking)
    for tag in (tag for tag in s.pairs if not (opened and tag == s.trace_tag)):
        if f"</{tag}>" not in written_prompt[written_prompt.find(f"<{tag}>") + 1 :]:
            yield "template", f"it never shows </{tag}>, so no completion would close this tag; show it in the prompt"
    if s.answer_form == "boxed" and "\\boxed" not in written_prompt:
        yield "template", "it never asks for \\boxed{}, where answer_form = boxed expects the answer"


def _unreadable(s: Scaffold) -> Iterator[tuple[str, str]]:
    """Yield a mistake for each stop string that would cut off an answer, and for each example in another form."""
    by_prompt = f"<{s.trace_tag}>" if s.trace_opened else ""
    whole = s.answer_in_form(PROBE).removeprefix(by_prompt)
    ends = "}" if s.answer_form == "boxed" else "</answer>"
    solved = [s.answer_in_form(one.answer, one.trace).removeprefix(by_prompt) for one in s.examples]
    written = [] if s.code else [PROSE, *(text[: text.rfind(ends)] for text in solved)]
    for stop in s.stop:
        until = whole[: whole.find(stop) + len(stop)] if stop and stop in whole else whole
        if not stop or any(stop in text for text in written) or PROBE not in (s.parse(until).region or ""):
            yield (
                "stop",
                f"{stop!r} ends a completion before its answer is written; choose a text that follows the answer",
            )
        elif s.parse(whole).tag_valid and not s.parse(until).tag_valid:
            yield "stop", f"{stop!r} ends a completion before its last tag is closed, so that no tags would be valid"
    for place, (example, text) in enumerate(zip(s.examples, solved, strict=True), 1):
        if not example.problem.strip() or not s.parse(text).tag_valid:
            words = f"example {place} does not follow the scaffold's form: one of its parts is empty or contains tags"
            yield f"examples.{place}", words
        elif words := kinds.faults_of_answer(s.answer_kind, example.answer):
            yield f"examples.{place}", f"example {place}: its answer {words}"
