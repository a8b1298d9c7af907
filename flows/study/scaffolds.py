"""Scaffolds and arms that a study defines itself: read from its tables, and what a model could not follow refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from flows.study.prompts import PROBLEM, faults_of
from flows.study.reading import NAME, NONE, UNNAMED, Reading, without
from storage.errors import UserError, did_you_mean
from tasks.domain import plugins
from tasks.domain.arms import ARMS, Arm
from tasks.domain.grading import kinds
from tasks.domain.ranges import Ranged
from tasks.domain.scaffolds import SCAFFOLDS, Scaffold

SCAFFOLD = ("scaffolds",)
#: What a scaffold has in place of what cannot be read, for the rest of it to be looked at.
PLAIN = {"template": PROBLEM, "answer_form": "tag"}
#: Fields that say nothing of what another means.
LOOKED_AT_ALONE = {"template", "stop", "examples", "answer_kind"}
#: The answer kind of which nothing is known that it could not hold.
TEXT = "exact_text"
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
    tables: Mapping[str, Any],
    base: Mapping[str, Arm],
    scaffolds: Mapping[str, Scaffold],
    reading: Reading,
    written: object = (),
) -> dict[str, Arm]:
    """Arms of tables, and one for each own scaffold that none of them has: under its name, training its own adapter.
    base: those that the study has already, which a table changes, as it does everybody's but for their prompt.
    written: tables of scaffolds; what is wrong with one that is none of `scaffolds` is told."""
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
        if worded not in known and isinstance(written, Mapping) and worded in written:
            continue
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
    for name in _bases_first(tables, before, reading):
        path, known, table = (*SCAFFOLD, name), {**SCAFFOLDS, **before, **found}, tables[name]
        asked = dict(table) if isinstance(table, Mapping) else table
        base = asked.pop("base", None) if isinstance(asked, dict) else None
        if not NAME.fullmatch(name) or name.lower() == NONE:
            reading.refuse(path, f"{name[:80]!r} {UNNAMED if name.lower() != NONE else NULL}")
        elif name in SCAFFOLDS:
            reading.refuse(path, f"'{name}' is everybody's scaffold already; give yours another name")
        elif base is not None and str(base) not in known:
            if str(base) not in tables:  # else what is wrong with it is told
                hint = did_you_mean(str(base), known)
                reading.refuse((*path, "base"), f"no scaffold '{base}'{hint} (known: {', '.join(known)})")
        else:
            old = known[str(base)] if base is not None else before.get(name)
            if isinstance(asked, dict) and old is None:
                asked.setdefault("trace_tag", "none")
            if isinstance(asked, dict) and asked.get("code") and (asked := _with_code(asked, path, reading)) is None:
                continue
            if made := _read(name, asked, old, reading):
                found[name] = made
    return found


def _bases_first(tables: Mapping[str, Any], before: Mapping[str, Scaffold], reading: Reading) -> list[str]:
    """Names of tables, each behind that of the one that it is based on, whichever is written first; without rings,
    which are refused."""
    based = {n: {str(t["base"])} for n, t in tables.items() if isinstance(t, Mapping) and "base" in t}
    waits = {n: based.get(n, set[str]()) & {*tables} - ({n} if n in before else set()) for n in tables}
    try:
        return [*TopologicalSorter(waits).static_order()]
    except CycleError as error:
        ring = error.args[1][::-1]
        reading.refuse((*SCAFFOLD, ring[0], "base"), f"it is based on itself: {' is based on '.join(ring)}")
        return _bases_first({n: t for n, t in tables.items() if n not in ring}, before, reading)


def _read(name: str, asked: object, old: Scaffold | None, reading: Reading) -> Scaffold | None:
    """The scaffold of a table; null where something is wrong with it, of which all is told: what cannot be read, and of
    the rest what no model could follow."""
    path, before = (*SCAFFOLD, name), len(reading.faults)
    made, guessed = reading.named(Scaffold, name, asked, old, SCAFFOLD), set[str]()
    if (unread := reading.faults[before:]) and isinstance(asked, dict):
        rest, told = without(asked, unread, path), {fault.path[2] for fault in unread if len(fault.path) > 2}
        filled = {field: plain for field, plain in PLAIN.items() if old is None and field not in rest}
        filled |= {"answer_kind": TEXT} if "answer_kind" in told else {}
        made = Reading(hidden=reading.hidden).named(Scaffold, name, rest | filled, old, SCAFFOLD)
        guessed = told | {*filled}
    for field, said in _faults(made) if made else ():
        at = tuple(field.split("."))
        if not _of_guesses(at[0], said, guessed):
            reading.refuse((*path, *at), said)
    if made is None or len(reading.faults) > before:
        return None
    return replace(made, answer_kind=kinds.pinned(made.answer_kind))


def _of_guesses(field: str, said: str, guessed: Set[str]) -> bool:
    """Whether a fault may be one of what stands in place of fields that cannot be read."""
    hangs = field in ("enable_thinking", "trace_opened") or (field == "template" and PROBLEM not in said)
    return field in guessed or (hangs and bool(guessed - LOOKED_AT_ALONE))


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
    said = {"template": PROBLEM, **fields}
    if hasattr(own, "prompt") and asked.get("template", said["template"]) != said["template"]:
        return reading.refuse((*path, "template"), f"scaffold {code} says its own prompts, and this is read by nobody")
    return {**said, **asked, "code": code}


def _faults(made: Scaffold) -> Iterator[tuple[str, str]]:
    """The field, and what is wrong with it."""
    try:
        made = replace(made, answer_kind=kinds.pinned(made.answer_kind))
        kinds.check(made.answer_kind)
    except UserError as error:
        yield "answer_kind", str(error)
        made = replace(made, answer_kind=TEXT)
    try:
        yield from faults_of(made)
    except UserError as error:  # of the code that it brings
        yield "code", str(error)
