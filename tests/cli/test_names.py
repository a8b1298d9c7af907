"""Studies by their names: where hashes stand, where refs are asked for, side by side, and taken away."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.catalog import find
from storage.reading.query_cache import reports
from storage.records.runs import all_runs, run_named, run_path, write_run
from tests import mini, warm

pytestmark = pytest.mark.slow

Row = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row, Row]:
    """A root with two studies: `demo`, and `cooler` with an arm and a number that differ."""
    root = tmp_path_factory.mktemp("names") / "store"
    first = mini.finish(root, "--seeds", "")
    return (
        root,
        first,
        mini.finish(root, "--seeds", "", "--arms", "panel", "--set", "passk.draws=400", "--name", "cooler"),
    )


@pytest.fixture
def root(made: tuple[Path, Row, Row], tmp_path: Path) -> Path:
    return shutil.copytree(made[0], tmp_path / "store")


def told(*words: str, root: Path) -> tuple[str, str]:
    """What a command that goes well writes to its output and beside it."""
    done = warm.run([warm.VARBAND, *words, "--root", str(root)])
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def said(*words: str, root: Path, fails: bool = False) -> str:
    done = warm.run([warm.VARBAND, *words, "--root", str(root)])
    assert (done.returncode != 0) == fails and "Traceback" not in done.stderr, done.stderr
    return done.stderr if fails else done.stdout


def test_a_name_stands_wherever_hashes_do(made: tuple[Path, Row, Row]) -> None:
    root, _, second = made
    runs = {row["profile"]: row for row in json.loads(said("runs", "--json", root=root))}
    assert runs["cooler"]["id"].startswith("cooler-")
    assert "passk.draws: 10000 → 400" in runs["cooler"]["changed"] and "arms: " in runs["cooler"]["changed"]
    first, second_, *_ = runs["cooler"]["changed"].split("; ")
    assert {first[:4], second_[:4]} == {"arms", "pass"}, "what the other study has not changed so stands first"
    listed = {row["ref"]: row["study"] for row in json.loads(said("store", "ls", "--json", root=root))}
    assert listed[second["report"]] == "cooler"
    assert "cooler, demo" in listed.values(), "what both need has both names"
    labels = {one.ref: one.label for one in reports(root)}
    assert labels[second["report"]].startswith("cooler · ")


def test_a_finished_study_is_listed_under_a_second_name_and_nothing_is_made(root: Path) -> None:
    again = mini.finish(root, "--seeds", "", "--name", "paper-figure")
    assert again["made"] == 0
    assert run_named(root, "paper-figure").report == run_named(root, "demo").report  # type: ignore[union-attr]
    assert [one.label.split(" · ")[0] for one in reports(root) if one.ref == again["report"]] == ["paper-figure"]


def test_a_run_and_a_name_are_taken_where_refs_are(made: tuple[Path, Row, Row]) -> None:
    root, first, second = made
    for text in ("cooler", run_named(root, "cooler").id, second["report"]):  # type: ignore[union-attr]
        assert str(find(root, text)) == second["report"]
        assert said("store", "show", text, root=root).startswith(second["report"])
    assert str(find(root, "demo")) == first["report"]
    assert "no artifact, run or study 'coooler'" in said("store", "show", "coooler", root=root, fails=True)


def test_compare_says_what_was_asked_otherwise_and_what_was_found(made: tuple[Path, Row, Row]) -> None:
    root, first, second = made
    told = json.loads(said("report", "demo", "--against", "cooler", "--json", root=root))
    assert told["reports"] == [first["report"], second["report"]]
    assert told["settings"]["passk.draws"] == [500, 400]
    assert told["settings"]["arms"] == [["panel", "thinking"], ["panel"]]
    rows = {(row["arm"], row["phase"]): row for row in told["figures"]}
    panel, thinking = rows["panel", "before"], rows["thinking", "before"]
    expected = {row["arm"]: row["heldout_before"] for row in first["summary"]}
    assert panel["one"] == panel["other"] == pytest.approx(expected["panel"])
    assert (panel["difference_pp"], panel["problems"], panel["reason"]) == (0, 16, "the same rollouts")
    assert thinking["one"] == pytest.approx(expected["thinking"]) and thinking["other"] is None
    text = said("report", "demo", "--against", "cooler", root=root)
    assert "passk.draws: 500 → 400" in text and "held-out accuracy" in text
    assert "of one study" in said("report", "demo", "--against", first["report"], root=root, fails=True)


def test_sql_says_of_how_many_studies_its_rows_are(root: Path) -> None:
    """A study that stopped has rows too: without its report it was mixed in in silence."""
    counted = ("store", "sql", "select count(*) from rollouts")
    assert "all 2 studies" in told(*counted, root=root)[1]
    run = run_named(root, "cooler")
    assert run is not None and run.report is not None
    shutil.rmtree(root / "report" / run.report)
    write_run(root, run.model_copy(update={"report": None, "state": "failed"}))
    said_of = told(*counted, root=root)[1]
    assert f"all 2 studies of {root}, finished or not: demo, cooler; --study NAME asks of one" in said_of
    assert told(*counted, "--study", "demo", root=root)[1] == ""
    run_path(root, run.id).unlink()
    assert told(*counted, root=root)[1] == "", "one study alone"


def test_rm_takes_what_is_of_one_study_alone_and_restores_it(root: Path) -> None:
    before, paid = set(Store(root).refs()), len(Ledger(root).shard_paths())
    would = said("store", "rm", "cooler", root=root)
    assert "would go with --yes" in would and set(Store(root).refs()) == before
    said("store", "rm", "cooler", "--yes", root=root)
    kept = set(Store(root).refs())
    assert kept < before and len(Ledger(root).shard_paths()) == paid
    assert [run.profile for run in all_runs(root)] == ["demo"]
    assert mini.finish(root, "--seeds", "")["made"] == 0, "the other study lacks nothing"
    said("store", "gc", "--restore", root=root)
    assert set(Store(root).refs()) == before and len(all_runs(root)) == 2


def test_rm_keeps_what_is_wanted(root: Path) -> None:
    run, store = run_named(root, "cooler"), Store(root)
    assert run is not None and run.report is not None
    inner = store.manifest(Ref.parse(run.report)).input_refs[0]
    assert "artifacts are made from it" in said("store", "rm", str(inner), "--yes", root=root, fails=True)
    assert "no run or study 'nothing'" in said("store", "rm", "nothing", root=root, fails=True)
