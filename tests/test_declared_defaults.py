"""A declared default is left out of names, so it must not change in silence: what was left out before would mean another.

`tests/golden/defaults.json` holds, for every stage, its version and each default that its recipes leave out. A new field or
argument is blessed as it is. A default that changed asks for a new version of every stage that leaves it out, and no
blessing goes round that:

    VARBAND_BLESS=1 pytest tests/test_declared_defaults.py
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from storage.artifacts.fingerprint import canonical, fingerprint, recorded, restored
from storage.artifacts.manifest import Group, declared, identity_of
from storage.artifacts.ref import Ref
from tasks.domain.grpo.types import LearnerConfig, PromptProblem
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.scaffolds import PANEL, Scaffold
from tasks.engines.learning.checkpoints import recipe_hash
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


def test_a_changed_default_is_a_new_version() -> None:
    now, kept = current(), json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    silent = [one for one in changed_in_silence(kept, now) if one.removeprefix("ledger: ") not in always_spelt()]
    assert not silent, (
        f"{', '.join(sorted(silent))}: names leave this default out, and it was another; bump the stages' versions (of the"
        " ledger: spell the field in `identity`)"
    )
    if os.environ.get("VARBAND_BLESS"):
        GOLDEN.write_text(json.dumps(now, indent=1) + "\n")
    assert now == json.loads(GOLDEN.read_text()), "a default came, went or has a new version: bless it"


@pytest.mark.parametrize("name", ["LearnerConfig.tag_weight", "init"])
def test_the_guard_sees_a_changed_default_and_takes_a_bump(name: str) -> None:
    now = current()
    kept = json.loads(json.dumps(now))
    kept["train_adapter"]["defaults"][name] = "another"
    assert changed_in_silence(kept, now) == [f"train_adapter: {name}"]
    kept["train_adapter"]["version"] -= 1
    assert not changed_in_silence(kept, now)


def test_every_setting_of_a_recipe_is_watched() -> None:
    watched = current()["train_adapter"]["defaults"]
    assert {"LearnerConfig.betas", "Sampling.top_p", "Policy.adapter", "Scaffold.stop", "init"} <= watched.keys()
    assert "BaseModel.name" not in watched, "a label stands in no name"


LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=1, lora_alpha=1)


def grown(kind: type, value: Any) -> Any:
    """The same value of a class of the same name that has one more field, at its default."""
    more = make_dataclass(
        kind.__name__, [("invented", int, field(default=7))], bases=(kind,), frozen=True, kw_only=True
    )
    return more(**{f.name: getattr(value, f.name) for f in dataclasses.fields(value)})


@pytest.mark.parametrize("value", [LEARNER, Sampling(max_tokens=8, seed=1), PANEL, PromptProblem("p", "s")])
def test_a_new_field_at_its_default_changes_no_fingerprint(value: Any) -> None:
    more = grown(type(value), value)
    assert canonical(more) == canonical(value) and fingerprint(more) == fingerprint(value)
    assert fingerprint(replace(more, invented=8)) != fingerprint(value)
    assert recorded(more) != recorded(value), "a manifest says it all the same"


def test_a_new_field_at_its_default_keeps_the_ledgers_accounts() -> None:
    draw, policy = Sampling(max_tokens=8, seed=1), Policy(arm="panel", model=BaseModel(sha256="a"))
    more = grown(Sampling, draw)
    assert more.identity(()) == draw.identity(()) != replace(more, invented=8).identity(())
    worded = replace(policy, scaffold=grown(Scaffold, PANEL))
    assert worded.identity() == policy.identity()
    assert replace(worded, scaffold=replace(worded.scaffold, invented=8)).identity() != policy.identity()


def test_a_new_field_at_its_default_refuses_no_running_checkpoint() -> None:
    base = REPO / "models" / "demo"
    problem = PromptProblem("p", "s")
    before = recipe_hash(base, [problem], LEARNER, None, 1.0)
    more = grown(LearnerConfig, LEARNER)
    assert recipe_hash(base, [grown(PromptProblem, problem)], more, None, 1.0) == before
    assert recipe_hash(base, [problem], replace(more, invented=8), None, 1.0) != before


@dataclass(frozen=True)
class Together(Group):
    size: int
    label: str = field(default="x", compare=False)


def test_a_new_argument_at_its_default_changes_no_fingerprint() -> None:
    before = identity_of("s", 1, {"a": 1, "group": Together(2)}, {})
    assert before["arguments"] == {"a": 1, "size": 2}
    assert (
        identity_of("s", 1, {"a": 1, "group": Together(2, "y"), "more": None, "some": ()}, {"more": None, "some": ()})
        == before
    )
    assert identity_of("s", 1, {"a": 1, "group": Together(2), "more": 3}, {"more": None}) != before


def test_what_is_recorded_is_read_back_whole_and_what_is_canonical_with_defaults() -> None:
    policy = Policy(arm="panel", model=BaseModel(name="a model", sha256="a"), adapter="training-1", adapter_step=3)
    assert restored(Policy, recorded(policy)) == restored(Policy, canonical(policy)) == policy
    assert restored(Policy, recorded(policy)).model.name == "a model"
