"""`varband store show`, `ls`, `sql`, `report --query`: as wide as the terminal; whole and plain in a pipe; JSON for scripts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.store import show
from cli.tables import MAX_ROWS
from storage.artifacts.store import Store
from tests import warm


def piped(*words: str, root: Path) -> subprocess.CompletedProcess[str]:
    bare = {k: v for k, v in warm.SHELL.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    return warm.run([warm.VARBAND, *words, "--root", str(root)], env=bare)


def test_every_kind_of_artifact_is_shown(demo_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    kinds = {ref.kind: ref for ref in Store(demo_store).refs()}
    assert len(kinds) >= 12
    for ref in kinds.values():
        done = CliRunner().invoke(show, [str(ref), "--root", str(demo_store)], catch_exceptions=False, color=False)
        assert done.stdout.startswith(str(ref)) and "made from" in done.stdout and "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "words", [("store", "ls"), ("runs",), ("store", "sql", "select * from rollouts"), ("report", "--query", "gains")]
)
def test_piped_tables_are_whole_with_a_line_a_row_and_have_no_colour(demo_store: Path, words: tuple[str, ...]) -> None:
    done = piped(*words, root=demo_store)
    assert done.returncode == 0, done.stderr
    rows = json.loads(piped(*words, "--json", root=demo_store).stdout)
    *_, head, rule = done.stdout.partition("╇")[0].splitlines()  # a report's query has a title above
    lines = done.stdout.splitlines()[done.stdout.partition("╇")[0].count("\n") + 1 :]
    assert len(lines) == min(len(rows), MAX_ROWS) + (len(rows) > MAX_ROWS) > 0 and "\x1b" not in done.stdout
    assert [name.strip() for name in head.split("┃")] == list(rows[0]) and set(rule) <= {"━", "╇"}


def test_show_as_json_is_the_manifest_and_the_rows(demo_store: Path) -> None:
    ref = Store(demo_store).refs("bands")[0]
    told = json.loads(piped("store", "show", ref.fingerprint[:9], "-n", "3", "--json", root=demo_store).stdout)
    assert told["manifest"]["fingerprint"] == ref.fingerprint and len(told["rows"]) == 3
    assert told["rows"] == Store(demo_store).read(ref).slice(0, 3).to_pylist()


def test_the_ends_of_completions_that_fail_are_shown(demo_store: Path) -> None:
    """Of one rollouts artifact and of a whole study; the counts are those of the rows."""
    store = Store(demo_store)
    ref = max(
        store.refs("rollouts"), key=lambda ref: sum(v == "no_answer" for v in store.read(ref)["verdict"].to_pylist())
    )
    rows = store.read(ref).to_pylist()
    failing = [r for r in rows if r["verdict"] == "no_answer" or not r["tag_valid"] or r["finish"] == "length"]
    assert failing
    shown = piped("store", "show", str(ref), "--completions", "1", "--failed", root=demo_store).stdout
    assert f"{rows[0]['arm']}: {len(failing):,} of {len(rows):,} completions lack" in shown
    first = min(failing, key=lambda r: (r["rollout"], r["problem_id"]))
    assert f"{first['problem_id']}, rollout {first['rollout']}: {first['verdict']}" in shown
    assert first["completion"].strip().splitlines()[-1][-40:] in shown and shown.count("rollout ") == 1
    report = str(store.refs("report")[0])
    every = json.loads(piped("store", "show", report, "--completions", "2", "--json", root=demo_store).stdout)
    assert {len([r for r in every if r["arm"] == arm]) for arm in {r["arm"] for r in every}} == {2}
