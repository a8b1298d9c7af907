"""A new objective is one file and one entry: shown on a copy of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
NEW = '''"""Reward minus the middle of the group's best and worst."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def from_middle(group: Group, _: Context) -> Advantages:
    return group.rewards_G - (group.rewards_G.max() + group.rewards_G.min()) / 2, {}
'''
USE = """
from dataclasses import replace
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped, policy_of
from tests.engines.conftest import random_rollouts
from tasks.domain.grpo.credit import credited
from tasks.domain.grpo.credit import ObjectiveState
config = replace(CONFIG, advantage="from_middle")
credit = credited(grouped(random_rollouts(PROBLEMS, 4, seed=1)), config, ObjectiveState())
assert credit.trains and all(a.tolist() == [0.5, -0.5, 0.5, -0.5] for a in credit.advantages.values())
"""


@pytest.mark.slow
def test_a_file_and_an_entry(tmp_path: Path) -> None:
    """The learner takes it, and the invariants of all objectives are asked of it; no other file knows its name."""
    for folder in ("tasks", "storage", "tests/domain", "tests/engines"):
        shutil.copytree(REPO / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "cases"))
    for file in ("pyproject.toml", "tests/tiny_model.py"):
        shutil.copy(REPO / file, tmp_path / file)
    advantages = tmp_path / "tasks" / "domain" / "grpo" / "advantages"
    (advantages / "from_middle.py").write_text(NEW)
    registry = (advantages / "registry.py").read_text()
    entry = 'OWN: Mapping[str, Objective] = {\n    "from_middle": Objective(from_middle),'
    registry = registry.replace("OWN: Mapping[str, Objective] = {", entry)
    first = "from tasks.domain.grpo.advantages import candidates, exploration\n"
    added = "from tasks.domain.grpo.advantages.from_middle import from_middle\n"
    (advantages / "registry.py").write_text(registry.replace(first, first + added))
    env = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "CI": "1",
    }  # by which hypothesis gives an example all the time it needs
    how = {"cwd": tmp_path, "env": env, "capture_output": True, "text": True}
    used = subprocess.run([sys.executable, "-c", USE], **how)  # type: ignore[call-overload]
    assert used.returncode == 0, used.stderr
    asked = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "tests/domain/grpo/test_advantages.py"]
    held = subprocess.run([sys.executable, *asked], **how)  # type: ignore[call-overload]
    assert held.returncode == 0, held.stdout[-3000:]
