"""What an artifact's name depends on: everything that changes it, and nothing else. By plans alone; nothing is made."""

from __future__ import annotations

import os
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from flows.running.plan import plan
from flows.study.models import SHIPPED
from flows.study.profiles import DEMO
from flows.study.resolve import resolve
from storage.artifacts.store import Store
from tasks.domain.arms import ARMS
from tasks.domain.scaffolds import Example, Message, Scaffold
from tasks.stage import Step
from tests.plugged import install

PROFILE = replace(DEMO, arms=("panel", "thinking", "no_panel"))
#: Made before any model is seen.
PROBLEMS = {"make_synthetic_pool", "split_pool", "calibrate_partitions"}


def steps(root: Path, model: Path | None = None) -> list[Step]:
    """What a run into this folder would take, one after the other."""
    study = resolve(replace(PROFILE, model=str(model)) if model else PROFILE, Store(root))
    return [planned.step for planned in plan(study, Store(root))]


def made_anew(before: list[Step], after: list[Step]) -> set[str]:
    """Stages of the steps that have other names now."""
    assert len(before) == len(after)
    return {b.recipe.stage for b, a in zip(before, after, strict=True) if b.ref != a.ref}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED["demo"], tmp_path / "model"))


def test_a_renamed_model_with_notes_beside_it_remakes_nothing(model: Path, tmp_path: Path) -> None:
    before = steps(tmp_path)
    for name in ("notes.txt", "README.md", "consolidated.safetensors", "optimizer.json"):
        (model / name).write_text("something")
    after = steps(tmp_path, model.rename(tmp_path / "under another name"))
    assert len(before) > 40 and not made_anew(before, after)


def test_one_byte_of_a_weight_remakes_all_that_comes_after_the_problems(model: Path, tmp_path: Path) -> None:
    """Also where the file's size and time of change are as before."""
    before, file = steps(tmp_path, model), model / "model.safetensors"
    stat, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = steps(tmp_path, model)
    assert [b.ref == a.ref for b, a in zip(before, after, strict=True)] == [b.recipe.stage in PROBLEMS for b in before]


#: Another value of every field of a scaffold; a field without an entry fails the test below by its name.
REWORDED = {
    "name": "another",
    "template": "Discuss among experts. {problem}",
    "trace_tag": "debate",
    "answer_form": "boxed",
    "stop": ("</answer>", "</debate>"),
    "chat": True,
    "enable_thinking": True,
    "trace_opened": True,
    "examples": (Example(problem="1+1?", trace="one and one", answer="2"),),
    "answer_kind": "integer",
    "code": "reversed@lab-tasks==1.0",
    "system": "Think in steps.",
    "messages": (Message(role="user", content="Solve {problem}"),),
}
#: What compares arms, and so depends on every one of them.
COMPARING = {
    *("audit_designs", "compare_diversity", "compare_gains", "compare_solved", "contrast_pass_at_k", "cross_bands"),
    *("estimate_pass_at_k", "measure_ceilings", "measure_tokens", "measure_votes", "render_report", "training_curves"),
}


@pytest.mark.parametrize("name", [f.name for f in fields(Scaffold)])
@pytest.mark.parametrize("arm", ["panel", "no_panel"])
def test_a_reworded_scaffold_remakes_what_depends_on_it(
    arm: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panel's: all of its own, and of no_panel what is evaluated with the panel's adapter. no_panel's: its own
    rollouts alone, for it trains nothing."""
    if name == "code":
        monkeypatch.syspath_prepend(str(install(tmp_path)))
    before = steps(tmp_path)
    scaffold = ARMS[arm].scaffold
    assert getattr(scaffold, name) != REWORDED[name]
    monkeypatch.setitem(ARMS, arm, replace(ARMS[arm], scaffold=replace(scaffold, **{name: REWORDED[name]})))
    after = steps(tmp_path)
    anew = [b.ref != a.ref for b, a in zip(before, after, strict=True)]
    assert anew == [depends(step, arm, before) for step in before]
    stages = {step.recipe.stage for step, changed in zip(before, anew, strict=True) if changed}
    assert stages >= COMPARING and ("train_adapter" in stages) == (arm == "panel")


def depends(step: Step, arm: str, others: list[Step]) -> bool:
    """Whether a step is of this arm's policy, of a training of it, or made from something that is."""
    policy = step.arguments.get("policy") or step.arguments.get("start")
    if policy is not None and policy.arm == arm:
        return True
    made_from = {ref for refs in step.recipe.inputs.values() for ref in refs}
    return any(depends(other, arm, others) for other in others if str(other.ref) in made_from)
