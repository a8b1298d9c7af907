"""The import contracts hold, name every room, and each of them can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent
PACKAGES = ("cli", "dashboards", "flows", "storage", "tasks", "varband")
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["name"]: contract
    for contract in tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}

DOWNWARD = "Imports run downward"
STORAGE = "The rooms of storage"
ARTIFACTS = "The rooms of artifacts"
TASKS = "The rooms of tasks: what makes or measures imports nothing that makes or measures"
DOMAIN = "The rooms of domain"
DASHBOARDS = "Dashboards see what storage lets them read"
PURE = "Domain is pure: no engine, no stage, nothing that is stored"
SEARCH = "A search method sees no gold: it knows parameters and what it has asked for, and nothing that grades"
IN_ENGINES = "The rooms of engines"
ENGINES = "Engines know nothing of the stages above them, nor of artifacts, records and the ledger"
MEASURES = "Measures know no engine, and no ledger and no store but through their stage"
REPORT = "The report reads what was made and makes nothing"
FLOWS = "The rooms of flows"
ASKED = "What is asked knows no stage"
DAG = "The DAG looks nothing up"

RULES = {"storage.bands", "storage.differences", "storage.errors", "storage.pass_at_k", "storage.resampling"}
#: Of the rooms that a contract closes one by one, those that stay open: a room added later is closed or named here.
OPEN = {
    DASHBOARDS: {"storage.errors", "storage.reading"},
    PURE: RULES | {"storage.artifacts.fingerprint"},
    ENGINES: RULES
    | {"storage.artifacts.fingerprint", "storage.durable", "storage.roots"}
    | {"tasks.domain", "tasks.engines"},
    MEASURES: RULES
    | {"storage.sql", *(f"storage.artifacts.{name}" for name in ("fingerprint", "kinds", "ref", "schemas"))}
    | {
        f"tasks.{name}"
        for name in ("designs", "domain", "embedded", "evidence", "measures", "origins", "published", "stage")
    },
    REPORT: RULES
    | {"storage.artifacts", "storage.reading", "storage.sql"}
    | {f"tasks.{name}" for name in ("domain", "report", "stage")},
    ASKED: {f"tasks.{name}" for name in ("active_grader", "domain", "engines", "former_names", "metering", "stage")}
    | {"tasks.steps"},
    DAG: {"storage.artifacts.kinds"}
    | {f"tasks.{name}" for name in ("domain", "evidence", "measures", "published", "report", "stage")}
    | {f"tasks.{name}" for name in ("benchmarks", "calibration", "cross_checks", "embedding", "partitions")}
    | {f"tasks.{name}" for name in ("pool", "regrading", "sampling", "searches", "splits", "synthetic_pool")}
    | {"tasks.adapters", "tasks.attempts", "tasks.training"},
}
#: (contract, module, what it may not import), both ways round where a contract has two sides.
PLANTED = [
    (DOWNWARD, "storage/bands.py", "tasks.stage"),
    (DOWNWARD, "tasks/pool.py", "flows.arm"),
    (DOWNWARD, "flows/arm.py", "cli.main"),
    (DOWNWARD, "cli/main.py", "varband"),
    (DOWNWARD, "flows/arm.py", "dashboards.charts"),
    (STORAGE, "storage/ledger.py", "storage.records.runs"),
    (STORAGE, "storage/records/runs.py", "storage.reading.live"),
    (STORAGE, "storage/bands.py", "storage.sql"),
    (STORAGE, "storage/another.py", "storage.sql"),
    (ARTIFACTS, "storage/artifacts/kinds/report.py", "storage.artifacts.store"),
    (ARTIFACTS, "storage/artifacts/another.py", "storage.artifacts.store"),
    (TASKS, "tasks/pool.py", "tasks.splits"),
    (TASKS, "tasks/measures/bands.py", "tasks.training"),
    (TASKS, "tasks/engines/hardware.py", "tasks.metering"),
    (TASKS, "tasks/domain/scaffolds.py", "tasks.engines.protocols"),
    (TASKS, "tasks/another.py", "tasks.stage"),
    (DOMAIN, "tasks/domain/scaffolds.py", "tasks.domain.policies"),
    (DOMAIN, "tasks/domain/grpo/losses.py", "tasks.domain.statistics.means"),
    (DASHBOARDS, "dashboards/charts.py", "storage.sql"),
    (DASHBOARDS, "dashboards/pages/bands.py", "storage.artifacts.kinds"),
    (DASHBOARDS, "dashboards/pages/bands.py", "tasks.domain.arms"),
    (PURE, "tasks/domain/arms.py", "storage.ledger"),
    (PURE, "tasks/domain/arms.py", "storage.artifacts.kinds"),
    (PURE, "tasks/domain/statistics/means.py", "storage.sql"),
    (SEARCH, "tasks/domain/search/majority.py", "tasks.domain.grading.grading"),
    (SEARCH, "tasks/domain/search/majority.py", "tasks.domain.scaffolds"),
    (IN_ENGINES, "tasks/engines/hardware.py", "tasks.engines.toolbox"),
    (IN_ENGINES, "tasks/engines/learning/learner.py", "tasks.engines.sampling.sampler"),
    (IN_ENGINES, "tasks/engines/sampling/vllm.py", "tasks.engines.toolbox"),
    (IN_ENGINES, "tasks/engines/another.py", "tasks.engines.toolbox"),
    (ENGINES, "tasks/engines/toolbox.py", "tasks.stage"),
    (ENGINES, "tasks/engines/sampling/vllm.py", "tasks.training"),
    (ENGINES, "tasks/engines/learning/checkpoints.py", "storage.ledger"),
    (MEASURES, "tasks/measures/votes.py", "tasks.engines.grading.graders"),
    (MEASURES, "tasks/measures/votes.py", "storage.artifacts.store"),
    (MEASURES, "tasks/published/checks.py", "tasks.engines.hardware"),
    (REPORT, "tasks/report/tables.py", "tasks.engines.toolbox"),
    (REPORT, "tasks/report/tables.py", "storage.ledger"),
    (FLOWS, "flows/arm.py", "flows.experiment"),
    (FLOWS, "flows/study/profiles.py", "flows.running.plan"),
    (FLOWS, "flows/another.py", "flows.arm"),
    (ASKED, "flows/study/questions.py", "tasks.sampling"),
    (ASKED, "flows/study/forms.py", "tasks.measures.bands"),
    (DAG, "flows/arm.py", "tasks.engines.toolbox"),
    (DAG, "flows/experiment.py", "storage.artifacts.store"),
    (DAG, "flows/problems.py", "tasks.active_grader"),
]


def _broken(root: Path) -> set[str]:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo", "--cache-dir", str(root / "cache")],
        cwd=root,
        env={"COLUMNS": "1000", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    told = {
        name: [x for x in done.stdout.splitlines() if x.startswith((f"{name} KEPT", f"{name} BROKEN"))]
        for name in CONTRACTS
    }
    assert all(len(lines) == 1 for lines in told.values()), done.stdout + done.stderr
    broken = {name for name, [line] in told.items() if line.startswith(f"{name} BROKEN")}
    assert bool(broken) == bool(done.returncode), done.stdout + done.stderr
    return broken


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("contracts")
    for package in PACKAGES:
        shutil.copytree(REPO / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(REPO / "pyproject.toml", root)
    return root


def test_every_contract_is_kept(copy: Path) -> None:
    assert _broken(copy) == set()


@pytest.mark.parametrize(("contract", "file", "imported"), PLANTED)
def test_a_contract_can_fail(copy: Path, contract: str, file: str, imported: str) -> None:
    module = copy / file
    kept = module.read_text() if module.exists() else None
    try:
        module.write_text(f"{kept or ''}\n\ndef planted():\n    import {imported}\n")
        assert contract in _broken(copy)
    finally:
        module.unlink() if kept is None else module.write_text(kept)


def test_every_contract_is_shown_to_fail() -> None:
    assert {contract for contract, _, _ in PLANTED} == set(CONTRACTS)


@pytest.mark.parametrize("contract", OPEN)
def test_what_a_contract_leaves_open_is_named(contract: str) -> None:
    """Closed packages are named room by room: one that is added is open until somebody says so here."""
    closed = set(CONTRACTS[contract]["forbidden_modules"])
    halls = [
        hall for hall in ("storage", "storage.artifacts", "tasks") if any(c.startswith(f"{hall}.") for c in closed)
    ]
    rooms = {room for hall in halls for room in _rooms(hall)} - set(halls)
    assert rooms - closed == OPEN[contract]
    assert closed - rooms <= {"flows", "tasks", "tasks.domain.grading", "tasks.domain.problems"}


def test_methods_of_search_are_shut_off_from_every_room_that_may_know_a_gold() -> None:
    assert set(_rooms("tasks.domain")) - set(CONTRACTS[SEARCH]["forbidden_modules"]) == {
        "tasks.domain.ranges",
        "tasks.domain.search",
    }


def _rooms(hall: str) -> list[str]:
    inside = [p for p in (REPO / hall.replace(".", "/")).iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
    return [f"{hall}.{p.stem}" for p in inside if p.stem != "__init__"]
