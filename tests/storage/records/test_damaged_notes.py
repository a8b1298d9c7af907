"""Notes and records that are not what was written: then nothing goes, and mending them loses no protection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.upkeep.verify import verify
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.garbage import collect, collecting, restore
from storage.records.runs import note_planned, notes_path, studies_of
from tests.storage.records.test_garbage import NOW, here, made, recorded, taken

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
    with pytest.raises(UserError, match=f"{path.name}: no notes of what run {RUN} needs"):
        taken(root)
    assert studies_of(root) == {}, "a listing goes on"
    (row,) = verify(root, repair=True).damage.to_pylist()
    assert row["what"] == "notes" and row["moved_to"]
    with pytest.raises(UserError, match="did not note what it needs"):
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
    asked = {"older_than": NOW, "remove": True}
    calls = [threading.Thread(target=collect, args=(tmp_path,), kwargs=asked) for _ in range(2)]
    with collecting(tmp_path, alone=True):
        for call in calls:
            call.start()
        calls[0].join(0.3)  # both wait by now
    for call in calls:
        call.join()
    assert here(tmp_path) == set() and restore(tmp_path).num_rows == 3 and here(tmp_path) == set(refs)
