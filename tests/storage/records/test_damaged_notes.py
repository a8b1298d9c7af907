"""Notes, pins and records that are not what was written: then nothing goes, and mending them loses no protection."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from flows.upkeep.verify import verify
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.decisions import pin, pins
from storage.records.garbage import collect, collecting, restore
from storage.records.notes import note_planned, notes_path, planned_refs, studies_of
from storage.records.runs import all_runs, read_run, run_path, runs_table
from tests.storage.records.test_garbage import NOW, here, made, recorded, taken

RUN = "demo-00000001"


@pytest.fixture
def parked(tmp_path: Path) -> tuple[Path, set[Ref]]:
    """A root with a parked study that needs all of its three artifacts."""
    refs = made(tmp_path)
    note_planned(tmp_path, RUN, refs)
    recorded(tmp_path, "parked")
    return tmp_path, set(refs)


def first_lines(path: Path, n: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:n]))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "one line left": lambda path: first_lines(path, 1),
    "last line lost": lambda path: first_lines(path, 3),
    "cut within a line": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "no refs": lambda path: path.write_bytes(b'"x"\n'),
    "numbers": lambda path: path.write_bytes(b"1\n2\n"),
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
    with pytest.raises(UserError, match=f"{path.name}: no notes of what run {RUN} needs"):
        taken(root)
    assert studies_of(root) == {}, "a listing goes on"
    (row,) = verify(root, repair=True).damage.to_pylist()
    assert row["what"] == "notes" and row["set_aside"]
    with pytest.raises(UserError, match="did not note what it needs"):
        taken(root)
    assert here(root) == refs
    note_planned(root, RUN, refs)
    assert taken(root) == set()


def test_notes_of_an_earlier_version_have_no_seal(parked: tuple[Path, set[Ref]]) -> None:
    root, refs = parked
    path = notes_path(root, RUN)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    assert set(planned_refs(root, RUN)) == refs and taken(root) == set()
    record = run_path(root, RUN)
    record.write_text(json.dumps(json.loads(record.read_text()) | {"stages": 4}))
    with pytest.raises(UserError, match="not all of them"):
        taken(root)


def test_damaged_notes_that_nobody_could_write_again_stay_in_their_place(parked: tuple[Path, set[Ref]]) -> None:
    root, refs = parked
    run_path(root, RUN).unlink()  # as of an import of published files
    first_lines(notes_path(root, RUN), 2)
    (row,) = verify(root, repair=True).damage.to_pylist()
    assert row["set_aside"] is None
    with pytest.raises(UserError, match="no notes"):
        taken(root)
    assert here(root) == refs


def test_a_pin_whose_words_are_damaged_holds_after_it_was_mended(tmp_path: Path) -> None:
    refs = made(tmp_path)
    pin(tmp_path, refs[2], "figure 3")
    (path,) = (tmp_path / "pins").glob("*")
    for damaged in (b"", path.read_bytes().replace(str(refs[2]).encode(), str(refs[0]).encode())):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=str(path)):
            taken(tmp_path)
        assert verify(tmp_path, repair=True).damage["what"].to_pylist() == ["pin"]
        assert [p.ref for p in pins(tmp_path)] == [str(refs[2])]
        assert taken(tmp_path) == set() and here(tmp_path) == set(refs)


@pytest.mark.parametrize("field", ["heartbeat", "started", "pid", "zone", "id"])
def test_a_record_with_an_impossible_field_is_damaged_and_no_traceback(
    parked: tuple[Path, set[Ref]], field: str
) -> None:
    root, refs = parked
    wrong = {"heartbeat": "2026-1", "started": "x", "pid": 2**70, "id": "demo-00000002"}
    change = {"heartbeat": "2026-11-23T10:00:00"} if field == "zone" else {field: wrong[field]}
    path = run_path(root, RUN)
    known = json.loads(path.read_text()) | {"state": "running", "host": socket.gethostname()}
    path.write_text(json.dumps(known | change))
    assert all_runs(root) == [] and runs_table(root).num_rows == 0
    for ask in (lambda: read_run(root, RUN), lambda: taken(root)):
        with pytest.raises(UserError, match=str(path)):
            ask()
    assert here(root) == refs
    assert verify(root, repair=True).damage["what"].to_pylist() == ["run"]
    assert taken(root) == set(), "its notes hold"


def test_what_was_made_from_what_cannot_be_read_stays(tmp_path: Path) -> None:
    refs = made(tmp_path)
    pin(tmp_path, refs[2], "figure 3")
    manifest = Store(tmp_path).path(refs[2]) / "manifest.json"
    whole = manifest.read_text()
    for damaged in (whole[:50], whole.replace('"created": "2', '"created": "x')):
        manifest.write_text(damaged)
        with pytest.raises(UserError, match=str(refs[2])):
            taken(tmp_path)
        assert {*tmp_path.glob("*/*-*/manifest.json")} == {Store(tmp_path).path(r) / "manifest.json" for r in refs}


@pytest.mark.parametrize("name", ["runs/demo-00000002.json", "pins/bands-{0}.json"])
def test_a_link_to_a_record_that_is_gone_keeps_everything(tmp_path: Path, name: str) -> None:
    """What it said is not known; nobody who linked it there meant that nothing is needed."""
    refs, link = made(tmp_path), tmp_path / name.format("0" * 16)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "gone.json")
    with pytest.raises(UserError, match=f"{link}: .*"):
        taken(tmp_path)
    assert here(tmp_path) == set(refs)
    assert verify(tmp_path, repair=True).damage["path"].to_pylist() == [name.format("0" * 16)]
    assert taken(tmp_path) == {str(ref) for ref in refs}


def test_of_two_collections_at_once_neither_deletes_what_the_other_moves(tmp_path: Path) -> None:
    refs = made(tmp_path)
    asked = {"older_than": NOW, "remove": True}
    calls = [threading.Thread(target=collect, args=(tmp_path,), kwargs=asked) for _ in range(2)]
    with collecting(tmp_path, alone=True):
        for call in calls:
            call.start()
        calls[0].join(0.3)  # both wait by now
    for call in calls:
        call.join()
    assert here(tmp_path) == set() and restore(tmp_path).num_rows == 3 and here(tmp_path) == set(refs)


def test_a_collection_that_is_started_again_by_itself_is_no_second_call(tmp_path: Path) -> None:
    refs = made(tmp_path)
    for _ in range(2):
        collect(tmp_path, older_than=NOW, remove=True, binned_for=timedelta(hours=1))
    assert restore(tmp_path).num_rows == 3 and here(tmp_path) == set(refs)


def test_a_training_that_is_made_anew_keeps_its_work_folder(tmp_path: Path) -> None:
    """Its former making is there, of an input that was made again."""
    grains, flours, _ = made(tmp_path)
    at = Store(tmp_path)
    at.delete(grains)
    made(tmp_path, 2)
    work = tmp_path / ".work" / str(flours)
    work.mkdir(parents=True)
    (work / "checkpoint").write_text("step 3")
    pin(tmp_path, flours, "kept")
    taken(tmp_path)
    assert (work / "checkpoint").exists()
