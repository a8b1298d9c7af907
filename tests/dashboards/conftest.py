"""One made-up study for all tests of this folder, whose rollouts hold what rollouts should not; and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.artifacts import Ref
from storage.store import Store
from tests.dashboards.synthetic import made_up_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPO = Path(__file__).resolve().parents[2]
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip


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
    """A headless Chromium; tests that need it skip loudly without one.

    Not for longer than a file of tests: while it is open an event loop runs in this thread, and `asyncio.run` refuses.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        if os.environ.get("VARBAND_REQUIRE_BROWSER"):
            pytest.fail("no chromium on this machine, and VARBAND_REQUIRE_BROWSER says that there must be one")
        pytest.skip("no chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield opened
        opened.close()
