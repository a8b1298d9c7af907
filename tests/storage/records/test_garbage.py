"""What `varband store gc` takes and what it leaves: a chain of three artifacts, wanted by nobody or by somebody."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from flows.upkeep.verify import verify
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.garbage import BIN, collect, collecting, restore
from storage.records.runs import Run, note_planned, notes_path, now, studies_of, write_run
from tests.storage.records.test_copies import made

NOW, WEEK = timedelta(0), timedelta(days=7)


def recorded(root: Path, state: str = "finished", name: str = "demo-00000001", **more: object) -> None:
    given = {"profile": "demo", "request": {}, "started": now(), "heartbeat": now(), "host": "elsewhere", "pid": 1}
    write_run(root, Run.model_validate({"id": name, "state": state, **given} | more))


def here(root: Path) -> set[Ref]:
    return set(Store(root).refs())


def taken(root: Path, older_than: timedelta = NOW) -> set[str]:
    found = collect(root, older_than=older_than, remove=True)
    return {Path(path).name for path in found["path"].to_pylist() if not path.startswith(BIN)}


def test_what_nobody_wants_goes_to_the_bin_and_a_second_call_empties_it(tmp_path: Path) -> None:
    ores, sword, fight = made(tmp_path)
    assert collect(tmp_path, older_than=NOW, remove=False).num_rows == 3
    assert here(tmp_path) == {ores, sword, fight}, "looking removes nothing"
    assert taken(tmp_path) == {str(ores), str(sword), str(fight)}
    assert here(tmp_path) == set()
    assert len(list((tmp_path / BIN).glob("*/*/*"))) == 3
    assert taken(tmp_path) == set()
    assert list((tmp_path / BIN).glob("*")) == []


def test_what_is_young_is_kept_with_all_that_it_was_made_from(tmp_path: Path) -> None:
    ores, sword, fight = made(tmp_path)
    for old in (ores, sword):
        manifest = Store(tmp_path).path(old) / "manifest.json"
        aged = json.loads(manifest.read_text())
        aged["provenance"]["created"] = "2001-01-01T00:00:00+00:00"
        manifest.write_text(json.dumps(aged))
    assert taken(tmp_path, WEEK) == set()
    Store(tmp_path).delete(fight)
    assert taken(tmp_path, WEEK) == {str(ores), str(sword)}


@pytest.mark.parametrize("state", ["running", "parked", "failed", "crashed"])
def test_what_an_unfinished_run_planned_is_kept(tmp_path: Path, state: str) -> None:
    refs, others = made(tmp_path), made(tmp_path, 2)
    note_planned(tmp_path, "demo-00000001", refs[1:2])  # the last one is not its own
    recorded(tmp_path, state)
    assert taken(tmp_path) == {str(r) for r in (refs[2], *others)}
    recorded(tmp_path, "finished")
    assert taken(tmp_path) == {str(r) for r in refs[:2]}


def test_nothing_goes_while_it_is_not_known_what_is_wanted(tmp_path: Path) -> None:
    refs = made(tmp_path)
    recorded(tmp_path, "parked")
    with pytest.raises(UserError, match="did not record which artifacts it"):
        taken(tmp_path)
    record = tmp_path / "runs" / "demo-00000001.json"
    record.write_text(record.read_text()[:40])
    with pytest.raises(UserError, match="not a run record of this version"):
        taken(tmp_path)
    record.unlink()
    assert here(tmp_path) == set(refs)


def test_scratch_of_a_living_writer_stays(tmp_path: Path) -> None:
    made(tmp_path)
    scratch = Store(tmp_path).scratch
    (scratch / "bands-0-living").mkdir()
    (scratch / "bands-0-dead").mkdir()
    (scratch / "bands-0-dead" / "data.parquet").write_bytes(b"half")
    for path in (scratch / "bands-0-dead" / "data.parquet", scratch / "bands-0-dead"):
        os.utime(path, (1e9, 1e9))
    (scratch / "bands-0-living" / "data.parquet").write_bytes(b"half")
    os.utime(scratch / "bands-0-living", (1e9, 1e9))
    assert "bands-0-dead" in taken(tmp_path)
    assert [p.name for p in scratch.iterdir()] == ["bands-0-living"]


def test_a_collection_waits_for_a_run_that_notes_what_it_needs(tmp_path: Path) -> None:
    refs = made(tmp_path)
    body = (
        "import sys, time; from pathlib import Path; from storage.artifacts.ref import Ref;"
        "from storage.records.garbage import collecting; from storage.records.runs import note_planned; root = Path(sys.argv[1])\n"
        "with collecting(root, alone=False):\n"
        "    print('held', flush=True); time.sleep(1.0)\n"
        "    note_planned(root, 'demo-00000001', [Ref.parse(sys.argv[2])])\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", body, str(tmp_path), str(refs[2])], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None and writer.stdout.readline() == "held\n"
    assert taken(tmp_path) == set()
    assert writer.wait(30) == 0


# Notes and records that are not what was written: then nothing goes, and mending them loses no protection.


RUN = "demo-00000001"


@pytest.fixture
def parked(tmp_path: Path) -> tuple[Path, set[Ref]]:
    """A root with a parked study that needs all of its three artifacts."""
    refs = made(tmp_path)
    note_planned(tmp_path, RUN, refs)
    recorded(tmp_path, "parked")
    return tmp_path, set(refs)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut within a line": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "another run's": lambda path: path.write_bytes(_other(path.parent.parent)),
}


def _other(root: Path) -> bytes:
    note_planned(root, "other-00000002", [])
    path = notes_path(root, "other-00000002")
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_notes_of_a_parked_study_let_nothing_go(parked: tuple[Path, set[Ref]], damage: str) -> None:
    root, refs = parked
    path = notes_path(root, RUN)
    DAMAGES[damage](path)
    with pytest.raises(UserError, match=f"{path.name}: the list of artifacts that run {RUN} needs"):
        taken(root)
    assert studies_of(root) == {}, "a listing goes on"
    (row,) = verify(root, repair=True)[0].to_pylist()
    assert row["what"] == "notes" and row["moved_to"]
    with pytest.raises(UserError, match="did not record which artifacts it"):
        taken(root)
    assert here(root) == refs
    note_planned(root, RUN, refs)
    assert taken(root) == set()


def test_what_was_made_from_what_cannot_be_read_stays(tmp_path: Path) -> None:
    refs = made(tmp_path)
    manifest = Store(tmp_path).path(refs[2]) / "manifest.json"
    whole = manifest.read_text()
    for damaged in (whole[:50], whole.replace('"created": "2', '"created": "x')):
        manifest.write_text(damaged)
        with pytest.raises(UserError, match=str(refs[2])):
            taken(tmp_path)
        assert {*tmp_path.glob("*/*-*/manifest.json")} == {Store(tmp_path).path(r) / "manifest.json" for r in refs}


def test_of_two_collections_at_once_neither_deletes_what_the_other_moves(tmp_path: Path) -> None:
    refs = made(tmp_path)
    options = {"older_than": NOW, "remove": True}
    calls = [threading.Thread(target=collect, args=(tmp_path,), kwargs=options) for _ in range(2)]
    with collecting(tmp_path, alone=True):
        for call in calls:
            call.start()
        calls[0].join(0.3)  # both wait by now
    for call in calls:
        call.join()
    assert here(tmp_path) == set() and restore(tmp_path).num_rows == 3 and here(tmp_path) == set(refs)
