"""The house rules that a reader could break without noticing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
HEAVY = (
    "torch",
    "vllm",
    "transformers",
    "peft",
    "sentence_transformers",
    "prefect",
    "streamlit",
    "sympy",
    "sklearn",
    "scipy",
)


@pytest.mark.parametrize(
    "module",
    ["flows.experiment", "flows.running.plan", "cli.main", "cli.run", "storage.reading.catalog", "tasks.stage"],
)
def test_heavy_libraries_stay_at_the_edge(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_stay_small() -> None:
    """Of Python and of SQL, tests and benchmarks too: what is longer wants splitting along a seam."""
    folders = ("benchmarks", "cli", "dashboards", "flows", "storage", "tasks", "tests", "varband")
    files = [p for folder in folders for kind in ("py", "sql") for p in (REPO / folder).rglob(f"*.{kind}")]
    lengths = {str(p.relative_to(REPO)): len(p.read_text().splitlines()) for p in files}
    assert len(lengths) > 100
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}


def test_stages_do_not_import_each_other() -> None:
    """Wherever in a file the import stands, and however it is written."""
    modules = {
        ".".join(p.relative_to(REPO).with_suffix("").parts): ast.parse(p.read_text())
        for p in (REPO / "tasks").rglob("*.py")
    }
    stages = {name for name, tree in modules.items() if _has_a_stage(tree)}
    assert {"tasks.pool", "tasks.training", "tasks.measures.bands", "tasks.report.render"} < stages
    found = {name: wrong for name in stages if (wrong := _imported(modules[name]) & stages)}
    assert not found


def _has_a_stage(tree: ast.Module) -> bool:
    made = [d for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for d in f.decorator_list]
    return any(isinstance(d, ast.Call) and ast.unparse(d.func).split(".")[-1] == "stage" for d in made)


def _imported(tree: ast.Module) -> set[str]:
    """Names of modules, and names in them, which may be modules too."""
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    inside = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
    return plain | {str(node.module) for node in froms} | inside


def test_sessions_are_opened_and_meters_made_in_one_place() -> None:
    callers = [p for folder in ("benchmarks", "cli", "flows") for p in sorted((REPO / folder).rglob("*.py"))]
    for name in ("Session", "Toolbox", "Meter"):
        made = [str(p.relative_to(REPO)) for p in callers if re.search(rf"\b{name}\(", p.read_text())]
        assert made == ["flows/running/sessions.py"]


def test_no_path_of_one_machine_is_committed() -> None:
    done = subprocess.run(
        ["git", "grep", "-nIE", r"/(work|root|farm)/", "--", ".", ":!.gitignore"], cwd=REPO, capture_output=True
    )
    if done.returncode > 1:
        pytest.skip("not a git checkout")
    found = [line for line in done.stdout.decode().splitlines() if "tests/test_architecture.py" not in line]
    assert not found
