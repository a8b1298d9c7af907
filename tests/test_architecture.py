"""The house rules that a reader could break without noticing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
HEAVY = [
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
]


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


def test_sessions_are_opened_and_meters_made_in_one_place() -> None:
    callers = [p for folder in ("benchmarks", "cli", "flows") for p in sorted((REPO / folder).rglob("*.py"))]
    for name in ("Session", "Toolbox", "Meter"):
        made = [str(p.relative_to(REPO)) for p in callers if re.search(rf"\b{name}\(", p.read_text())]
        assert made == ["flows/running/sessions.py"]
