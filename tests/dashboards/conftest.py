"""One made-up study for all tests of this folder, whose rollouts hold what rollouts should not; and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from tests.chromium import headless
from tests.dashboards.synthetic import made_up_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPO = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Study:
    root: Path
    report: Ref

    def page(self, name: str) -> str:
        return (Store(self.root).files(self.report) / name).read_text()


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    root = tmp_path_factory.mktemp("made_up")
    return Study(root, made_up_study(root, problems=16, steps=4, hostile=True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for one file of tests. Left open, it would break `asyncio.run` in later files."""
    with headless() as opened:
        yield opened
