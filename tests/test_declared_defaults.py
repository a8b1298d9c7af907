"""A declared default is left out of names, so it must not change in silence: what was left out before would mean another.

`tests/golden/defaults.json` holds, for every stage, its version and each default that its recipes leave out. A new field or
argument is blessed as it is. A default that changed asks for a new version of every stage that leaves it out, and no
blessing goes round that:

    VARBAND_BLESS=1 pytest tests/test_stage_versions.py tests/test_declared_defaults.py
"""

import dataclasses
import json
import os
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.fingerprint import canonical, fingerprint, recorded, restored
from storage.artifacts.manifest import Group, identity_of
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.scaffolds import PANEL, Scaffold
from tasks.engines.learning.checkpoints import recipe_hash
from tests.declared_defaults import GOLDEN, bless, current, refuse_silence

REPO = Path(__file__).resolve().parent.parent


def test_a_changed_default_is_a_new_version() -> None:
    if os.environ.get("VARBAND_BLESS"):
        bless()
    refuse_silence(now := current())
    assert now == json.loads(GOLDEN.read_text()), (
        "a default came, went or has a new version: VARBAND_BLESS=1 pytest tests/test_stage_versions.py"
    )


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
