"""The replayed study and the rows of its tables, for the tests of this room."""

from pathlib import Path
from typing import Any

import pytest

from flows.replay import replay, rows_of
from storage.artifacts.store import Store


@pytest.fixture(scope="module")
def store(replayed: Path) -> Store:
    return Store(replayed)


@pytest.fixture(scope="module")
def result(published: Path, store: Store) -> dict[str, Any]:
    return rows_of(store, replay(published, store))
