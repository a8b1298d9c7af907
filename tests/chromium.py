"""A headless Chromium of the system's, through Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.needs import lacks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@contextmanager
def headless() -> Iterator[Browser]:
    """While it is open an event loop runs in this thread, and `asyncio.run` refuses."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        lacks("browser", "no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        try:
            yield opened
        finally:
            opened.close()
