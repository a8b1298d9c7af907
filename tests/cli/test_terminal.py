"""`varband store show`, `ls`, `sql`, `report --query`: as wide as the terminal; whole and plain in a pipe; JSON for scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.console import Console

from cli.run import runs
from cli.store import show
from cli.tables import MAX_ROWS, print_table
from cli.view import summary_table
from storage.artifacts.store import Store
from storage.records.runs import all_runs
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


def test_long_texts_of_runs_stand_below_the_table_on_a_terminal(
    demo_store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scaffold of one's own is a change of 500 characters: one run filled two screens."""
    (first, *_) = all_runs(demo_store)
    run = first.model_copy(
        update={"changes": (f"template: – → '{'long ' * 100}'", "steps: 40 → 4"), "why": "limit reached"}
    )
    monkeypatch.setattr("storage.records.runs.all_runs", lambda _: [run])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    runs.callback(root=demo_store, as_json=False)  # type: ignore[misc]
    table, told = capsys.readouterr().out.split(f"\n\n{run.id}\n")
    assert "long" not in table and "why" not in table and run.id in table
    changed, why = told.splitlines()
    assert changed.startswith("  changed: template: – → 'long ") and changed.endswith("…; steps: 40 → 4")
    assert len(changed) < 120 and why == "  why: limit reached"


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


def test_a_ref_that_is_not_there_is_one_sentence(demo_store: Path) -> None:
    for words in (("store", "show", "bands-0000"), ("report", "bands-0000"), ("export", "gallery", "report-0000")):
        done = piped(*words, root=demo_store)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("varband: no artifact, run or study '") and done.stderr.count("\n") == 1


def test_words_stay_whole_and_texts_go_on_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow a terminal is: what is read there is given to the next command."""
    monkeypatch.setenv("COLUMNS", "80")
    name = "a-comparison-of-scaffolds-at-the-lowest-temperature-of-all-01234567"
    table = pa.table({"ref": [name], "text": ["t" * 900], "steer": ["\x1b[31m\u202e"], "more": [1]})
    print_table(table, as_json=False)
    out = capsys.readouterr().out
    assert re.search(rf"^{name} ", out, re.MULTILINE) and re.search(r" +1$", out, re.MULTILINE)
    assert out.count("t") - name.count("t") - 3 == 400 and "…" in out
    assert "\x1b" not in out and "\u202e" not in out


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_the_summary_loses_no_figure_in_80_columns(seeds: tuple[int, ...]) -> None:

    row = {"variance": 160, "problems": 877, "heldout_before": 0.491, "heldout_after": 0.829, "gain": 0.338}
    row |= {"gain_low": -0.281, "gain_high": 0.402, "diversity_before": 0.15, "diversity_after": 0.22}
    row |= {"tokens_per_correct": 12_345.0, "no_answer": 0.876, "invalid_tags": 1.0}
    rows = [{"arm": arm, "seed": seed, **row} for arm in ("panel", "think_tags") for seed in seeds]
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(summary_table("demo", rows))
    shown = console.export_text()
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    for figure in ("160/877", ".491→.829", "+0.34 [-0.28, 0.40]", ".15→.22", "12,345", "88%", "100%"):
        assert shown.count(figure) == len(rows)


def test_a_report_cuts_no_sentence_and_so_no_figure_in_it(demo_store: Path) -> None:
    """Of what is said to have gone wrong all of it can be read, in a pipe too."""
    for query in ("audit", "band_tests", "token_pairs"):
        rows = json.loads(piped("report", "--query", query, "--json", root=demo_store).stdout)
        printed = piped("report", "--query", query, root=demo_store).stdout
        assert rows and "…" not in printed
        words = {word for row in rows for text in row.values() if isinstance(text, str) for word in text.split()}
        assert words and not [word for word in words if word not in printed]
