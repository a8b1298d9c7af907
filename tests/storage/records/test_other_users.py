"""A root of which this user may read or write a part only: nothing of it is damaged, unwanted or missing for that."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.upkeep.verify import verify
from storage.errors import UserError
from storage.records.copies import copy_study
from storage.records.decisions import pin
from storage.records.garbage import collect
from storage.records.notes import note_planned
from tests.storage.records.test_garbage import NOW, Grains, here, made, recorded, taken

RUN = "demo-00000001"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A root that another user of the machine may write into."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder) / "root"


def as_another_user(act: Callable[[], object]) -> None:
    if os.geteuid() != 0:
        act()  # modes hold for us too
        return
    os.seteuid(65534)
    try:
        act()
    finally:
        os.seteuid(0)


def test_a_root_that_only_others_may_write_is_looked_at_and_copied(shared: Path) -> None:
    """As a backup is that somebody mounts to restore from it."""
    refs = made(shared)
    back = shared.parent / "back"
    for folder, _, names in os.walk(shared):
        for name in (*names, "."):
            (Path(folder) / name).chmod(0o555)

    def act() -> None:
        assert collect(shared, older_than=NOW, remove=False).num_rows == 3
        assert copy_study(shared, back).artifacts == 3
        with pytest.raises(PermissionError):
            collect(shared, older_than=NOW, remove=True)

    as_another_user(act)
    assert here(back) == here(shared) == set(refs)


def test_what_a_reader_may_not_read_is_neither_damaged_nor_unwanted(shared: Path) -> None:
    refs = made(shared)
    note_planned(shared, RUN, refs)
    recorded(shared, "parked")
    pin(shared, refs[2], "figure 3")
    for folder, _, names in os.walk(shared):
        os.chmod(folder, 0o777)
        for name in names:
            os.chmod(Path(folder) / name, 0o666 if name.endswith(".lock") else 0)

    def repair() -> None:
        rows = verify(shared, repair=True).damage.to_pylist()
        assert len(rows) == 6 and all(row["set_aside"] is None for row in rows)

    def gc() -> None:
        with pytest.raises((PermissionError, UserError)):
            taken(shared)

    as_another_user(repair)
    as_another_user(gc)
    for path in shared.rglob("*"):
        if path.is_file():
            path.chmod(0o666)
    for closed in ("runs", "pins"):
        (shared / closed).chmod(0)
        as_another_user(gc)
        (shared / closed).chmod(0o777)
    assert here(shared) == set(refs)
    (shared / Grains.KIND).chmod(0)
    as_another_user(lambda: _names(shared, Grains.KIND))


def _names(root: Path, folder: str) -> None:
    rows = verify(root).damage.to_pylist()
    assert [(row["what"], row["path"]) for row in rows] == [("folder", folder)]
