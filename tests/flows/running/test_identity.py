"""What an artifact's name depends on: everything that changes it, and nothing else. By plans alone; nothing is made."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flows.running.plan import plan
from flows.study.profiles import DEMO
from flows.study.resolve import SHIPPED, Study, resolve
from storage.artifacts.store import Store
from tasks.stage import Step

PROFILE = replace(DEMO, arms=("panel", "thinking", "no_panel"))
#: Made before any model is seen.
PROBLEMS = {"make_synthetic_pool", "split_pool"}


def study_of(model: Path | None = None) -> Study:
    return resolve(PROFILE, model=model, encoder=None, data=None)


def steps(study: Study, root: Path) -> list[Step]:
    return [planned.step for planned in plan(study, Store(root))]


def made_anew(before: list[Step], after: list[Step]) -> set[str]:
    """Stages of the steps that have other names now."""
    assert len(before) == len(after)
    return {b.recipe.stage for b, a in zip(before, after, strict=True) if b.ref != a.ref}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED["demo"], tmp_path / "model"))


def test_a_renamed_model_with_notes_beside_it_remakes_nothing(model: Path, tmp_path: Path) -> None:
    before = steps(study_of(), tmp_path)
    for name in ("notes.txt", "README.md", "consolidated.safetensors", "optimizer.json"):
        (model / name).write_text("something")
    after = steps(study_of(model.rename(tmp_path / "under another name")), tmp_path)
    assert len(before) > 40 and not made_anew(before, after)


def test_one_byte_of_a_weight_remakes_all_that_comes_after_the_problems(model: Path, tmp_path: Path) -> None:
    """Also where the file's size and time of change are as before."""
    before, file = steps(study_of(model), tmp_path), model / "model.safetensors"
    stat, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = steps(study_of(model), tmp_path)
    assert [b.ref == a.ref for b, a in zip(before, after, strict=True)] == [b.recipe.stage in PROBLEMS for b in before]
