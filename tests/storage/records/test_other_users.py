"""A root of which this user may read or write a part only: nothing of it is damaged, unwanted or missing for that."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.records.copies import copy_study
from storage.records.garbage import collect
from tests.storage.records.test_garbage import NOW, here, made

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
