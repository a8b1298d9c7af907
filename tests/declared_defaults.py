"""Declared defaults that names leave out, of every stage: what `tests/golden/defaults.json` holds of them."""

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from storage.artifacts.fingerprint import recorded
from storage.artifacts.manifest import Group, declared
from storage.artifacts.ref import Ref
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.scaffolds import Scaffold
from tasks.stage import STAGES

REPO = Path(__file__).resolve().parent.parent
GOLDEN = REPO / "tests" / "golden" / "defaults.json"
Kept = dict[str, dict[str, Any]]
#: What the ledger files rollouts under: it has no version that could be bumped.
LEDGER = (Sampling, Scaffold)


def dataclasses_in(hint: Any, seen: set[type]) -> Iterator[type]:
    """Every dataclass that a value of this type may hold, subclasses too; refs are names, not values."""
    for kind in (hint, *get_args(hint)):
        if kind is not hint:
            yield from dataclasses_in(kind, seen)
        elif (
            isinstance(kind, type) and dataclasses.is_dataclass(kind) and not issubclass(kind, Ref) and kind not in seen
        ):
            seen.add(kind)
            yield kind
            hints = get_type_hints(kind)
            for part in (*(hints[f.name] for f in dataclasses.fields(kind)), *kind.__subclasses__()):
                yield from dataclasses_in(part, seen)


def left_out(kind: Any) -> dict[str, object]:
    """Defaults that a canonical form leaves out, by the field's full name; those of a group stand as arguments."""
    fields = [f for f in dataclasses.fields(kind) if f.init and f.compare and f.default is not dataclasses.MISSING]
    stem = "" if issubclass(kind, Group) else f"{kind.__name__}."
    return {f"{stem}{f.name}": recorded(f.default) for f in fields}


def current() -> Kept:
    for path in sorted((REPO / "tasks").rglob("*.py")):
        if "\n@stage(" in path.read_text():
            importlib.import_module(".".join(path.relative_to(REPO).with_suffix("").parts))
    found: Kept = {"ledger": {"version": 0, "defaults": {n: d for kind in LEDGER for n, d in left_out(kind).items()}}}
    for name, one in sorted(STAGES.items()):
        if one.function.__module__.startswith("tasks."):
            defaults = {name: recorded(value) for name, value in declared(one.function).items()}
            hints, seen = get_type_hints(one.function), set[type]()
            for argument in inspect.signature(one.function).parameters:
                for kind in dataclasses_in(hints[argument], seen):
                    defaults |= left_out(kind)
            found[name] = {"version": one.version, "defaults": dict(sorted(defaults.items()))}
    return found


def changed_in_silence(kept: Kept, now: Kept) -> list[str]:
    """`stage: default` where a default is another under the version that left it out. One that is gone is a change of
    code like any other, which test_stage_versions sees."""
    return [
        f"{stage}: {name}"
        for stage in kept.keys() & now.keys()
        if kept[stage]["version"] == now[stage]["version"]
        for name, default in kept[stage]["defaults"].items()
        if now[stage]["defaults"].get(name, default) != default
    ]


def always_spelt() -> set[str]:
    """What the ledger's identities spell whatever the default is: a changed default of theirs changes no meaning."""
    policy = Policy(arm="panel", model=BaseModel(name="", sha256=""))
    return {f"Sampling.{name}" for name in Sampling(max_tokens=1).identity(())} | {
        f"Scaffold.{name}" for name in {*policy.identity(), "stop"}
    }


def refuse_silence(now: Kept) -> None:
    """Errors: AssertionError for a default that changed under a version that leaves it out."""
    kept = json.loads(GOLDEN.read_text())
    silent = [one for one in changed_in_silence(kept, now) if one.removeprefix("ledger: ") not in always_spelt()]
    assert not silent, (
        f"{', '.join(sorted(silent))}: names leave this default out, and it was another; bump the stages' versions (of"
        " the ledger: spell the field in `identity`)"
    )


def bless() -> None:
    """Errors: AssertionError as refuse_silence, and nothing is blessed."""
    refuse_silence(now := current())
    GOLDEN.write_text(json.dumps(now, indent=1) + "\n")
