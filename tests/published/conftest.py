"""The replayed study and its summary, for the tests of this room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.replay import replay, summary
from storage.artifacts.store import Store


@pytest.fixture(scope="module")
def store(replayed: Path) -> Store:
    return Store(replayed)


@pytest.fixture(scope="module")
def result(published: Path, store: Store) -> dict[str, Any]:
    return summary(store, replay(published, store))
