"""A setting that nothing reads is refused, and every setting that has one reader alone is known to."""

from __future__ import annotations

import ast
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from flows.study.changes import tables_of
from flows.study.profile import Profile
from flows.study.profiles import PROFILES
from flows.study.reading import flat
from flows.study.request import profile_of
from flows.study.set_option import overridden, settable
from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import LOSSES, read_by

LEARNER = LearnerConfig(steps=3, groups_per_step=2, group_size=4, learning_rate=1e-3, lora_rank=4, lora_alpha=4)
ROOM = Path(__file__).parents[3] / "tasks" / "domain" / "grpo"


@pytest.mark.parametrize(
    "setting",
    [
        "advantage_k=2",
        "bonus=0.3",
        "bonus_gate=none",
        "bonus_baseline=0.4",
        "tis_cap=3",
        "cov_kl=2",
        "tau_negative=2",
        "entropy_delta=0.1",
        "clip_low=0.1",
    ],
)
def test_a_number_that_the_objective_does_not_use_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=f"training.{setting.split('=')[0]} is read by nothing here") as raised:
        overridden(PROFILES["demo"], [f"training.{setting}"])
    assert "\n" not in str(raised.value)


def test_a_number_that_one_of_the_compared_objectives_uses_is_taken() -> None:
    changed = overridden(PROFILES["demo/objectives"], ["training.bonus=0.3"])
    assert {one.training.bonus for one in changed.objectives} == {0.3}
    assert overridden(PROFILES["demo"], ["training.advantage=pkpo", "training.advantage_k=2"]).training.advantage_k == 2


def test_what_an_objective_or_a_loss_reads_are_settings() -> None:
    names = {field.name for field in fields(LearnerConfig)}
    assert {name for one in (*LOSSES.values(), *ADVANTAGES.values()) for name in one.reads} <= names


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_reads_what_its_functions_read(loss: str) -> None:
    """By their source: every `config.x` of the functions that a loss is made of."""
    functions = {
        node.name: node
        for node in ast.parse((ROOM / "losses.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    one, found, todo = LOSSES[loss], set[str](), [LOSSES[loss].term.__name__]
    todo += [one.weigh.__name__] if one.weigh else []
    while todo:
        for node in ast.walk(functions[todo.pop()]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "config":
                found.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                todo.append(node.func.id)
    assert found | ({"max_tokens"} if one.reduction == "constant" else set()) == {*one.reads}
    assert all(read_by(replace(LEARNER, loss=loss), name) for name in one.reads)


OWN = """
base = "qwen-1.5b"
arms = ["panel", "mine"]
[scaffolds.mine]
base = "panel"
[objectives.long]
learning_rate = 1e-4
[lessons.gsm8k.training]
steps = 3
"""


def refused(study: Profile, setting: str) -> str:
    """What was said against it; empty where it was taken."""
    try:
        overridden(study, [setting])
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("word", ["demo", "paper", pytest.param("demo/objectives", marks=pytest.mark.slow), "own.toml"])
def test_what_a_shell_completes_is_what_set_takes(word: str) -> None:
    """Given what no field may be, the value is refused and never the field; and no field that a study writes of itself
    is left out."""
    study = profile_of(word, OWN) if word == "own.toml" else PROFILES[word]
    paths = list(settable(study))
    assert len(paths) == len(set(paths)) > 120
    for path in paths:
        said = refused(study, f"{path}=\x00")
        assert not re.search(r"no field|no table|fields of its own|tables \[|all objectives have", said), said
    tables = {path for path, _ in flat(tables_of(study)) if not path.endswith(".base")}
    assert {path for path in tables if not path.startswith("arms")} <= {*paths}
