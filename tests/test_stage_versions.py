"""A stage whose code changed must say so: its version is part of every fingerprint, its code is not.

`tests/golden/stages.json` holds each stage's version and a digest of the modules and queries that its rows depend on. If a digest moved and
the version did not, either bump the version (the rows change) or bless the change (they do not). So it does of each objective, whose
file is no part of a stage's digest: its own version, in its entry of the registry, is in the names of the trainings that use it.

    VARBAND_BLESS=1 pytest tests/test_stage_versions.py
"""

import ast
import hashlib
import importlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest

from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.stage import STAGES, Stage
from tests import declared_defaults

BLESS = "VARBAND_BLESS=1 pytest tests/test_stage_versions.py"
REPO = Path(__file__).resolve().parent.parent
GOLDEN = REPO / "tests" / "golden" / "stages.json"
#: Where and how a stage runs, and what it was called, which by design is no part of its result.
EXECUTION = {"tasks.stage", "tasks.metering", "tasks.engines.toolbox", "tasks.engines.hardware"}


#: What of storage makes rows: rules that SQL and Python share.
RULES = {"storage.estimates", "storage.sql"}
#: Queries whose rows a stage keeps.
QUERIES = {"audit_designs": "lint_*.sql", "render_report": "report_summary.sql"}


def code_of(module: str) -> str:
    """The module's syntax without comments, docstrings and layout."""
    path = REPO / Path(*module.split("."))
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:]  # type: ignore[attr-defined]
    return ast.dump(tree)


def stages() -> dict[str, Stage[..., Any]]:
    """The project's own, by name."""
    for path in sorted((REPO / "tasks").rglob("*.py")):
        if "\n@stage(" in path.read_text():
            importlib.import_module(".".join(path.relative_to(REPO).with_suffix("").parts))
    return {name: one for name, one in sorted(STAGES.items()) if one.function.__module__.startswith("tasks.")}


def current() -> dict[str, dict[str, object]]:
    graph = grimp.build_graph("tasks", "storage", cache_dir=None)
    objectives = {f"objective {name}": (one.version, one.advantage.__module__) for name, one in ADVANTAGES.items()}
    own = {module for _, module in objectives.values()}
    queries = {name: sorted((REPO / "storage/reading/queries").glob(files)) for name, files in QUERIES.items()}
    code = cache(code_of)
    found = {}
    for name, (version, module) in {n: (s.version, s.function.__module__) for n, s in stages().items()}.items():
        found[name] = {
            "version": version,
            "code": _digest(_read_by(module, graph) - EXECUTION - own, code, queries.get(name, [])),
        }
    for name, (version, module) in sorted(objectives.items()):
        found[name] = {"version": version, "code": _digest(_read_by(module, graph), code)}
    return found


def _read_by(module: str, graph: grimp.ImportGraph) -> set[str]:
    upstream = {module} | graph.find_upstream_modules(module)
    return {m for m in upstream if m.startswith("tasks") or m in RULES}


def _digest(modules: set[str], code: Callable[[str], str], queries: Sequence[Path] = ()) -> str:
    text = "".join(f"{m}:{code(m)}" for m in sorted(modules)) + "".join(path.read_text() for path in queries)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_changed_stages_have_a_new_version() -> None:
    now = current()
    if os.environ.get("VARBAND_BLESS"):
        declared_defaults.bless()  # which holds the versions too, and refuses
        GOLDEN.write_text(json.dumps(now, indent=1) + "\n")
    kept = json.loads(GOLDEN.read_text())
    assert set(now) == set(kept), f"a stage or an objective came or went: {BLESS}"
    stale = [
        name
        for name in now
        if now[name]["code"] != kept[name]["code"] and now[name]["version"] == kept[name]["version"]
    ]
    assert not stale, (
        f"{', '.join(stale)}: the code changed and the version did not; bump it if its rows change (an objective's: if"
        " its advantages do; where that is true of some settings alone, of a loss or a part of the reward, those have"
        f" versions too), and then, or for a change that moves no row: {BLESS}"
    )
    assert now == kept, f"a version was bumped: {BLESS}"


def test_an_objective_answers_for_its_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed one makes those stale that are made of it, and no stage."""
    changed, code = "tasks.domain.grpo.advantages.best_of_k", code_of
    before = current()
    monkeypatch.setitem(globals(), "code_of", lambda module: code(module) + "changed" * (module == changed))
    now = current()
    stale = {name for name in now if now[name] != before[name]}
    of_best = ("pass_at_k", "pkpo", "best_alone", "best_alone_standardised", "entropic")
    assert {f"objective {name}" for name in of_best} == stale
