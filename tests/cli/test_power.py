"""`varband power` on the difficulty that an arm of the root has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from cli.analysis import power
from storage.artifacts.manifest import Recipe, provenance
from storage.artifacts.rows import Payload
from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from tests.measures.conftest import rows_of


def test_the_difficulty_of_a_measured_arm(tmp_path: Path) -> None:
    """Rollouts after training, and those that stand in two artifacts, do not count (twice)."""
    rng, store = np.random.default_rng(0), Store(tmp_path)
    store.prepare()
    groups = {f"p{i}": "".join("c" if u < p else "w" for u in rng.random(8)) for i, p in enumerate(rng.beta(1, 3, 400))}
    tables = [rows_of(groups), rows_of({"p1": groups["p1"]}), rows_of(dict.fromkeys(groups, "c" * 8), step=40)]
    for n, table in enumerate(tables):
        ref = Rollouts("rollouts", f"{n:016}")
        store.write(ref, Payload(table), Recipe(stage="toy", version=1, arguments={}, inputs={}), provenance(0.0))

    def run(*words: str) -> str:
        asked = ["-n", "100", "-g", "8", "--trials", "100", "--root", str(tmp_path), *words]
        return CliRunner().invoke(power, asked, catch_exceptions=False).output

    a, b = json.loads(run("--difficulty", "panel", "--json"))["difficulty"]
    solved = sum(group.count("c") for group in groups.values()) / (8 * len(groups))
    assert abs(a / (a + b) - solved) < 1e-9 and 2.5 < a + b < 6
    assert "Difficulty: panel on 400 problems" in run("--difficulty", "panel")
