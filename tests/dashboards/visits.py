"""A server of the app and a visit to one of its pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.dashboards.conftest import REPO
from tests.servers import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = ("", "bands", "training", "results", "traces", "audit")
#: Streamlit looks for its server below a page's own address first.
OWN_404 = "_stcore"


def served(root: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    words = ["-c", "from cli.main import main; main()", "serve", "--root", str(root), "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, *words],
        cwd=REPO,
        env=os.environ | {"PYTHONPATH": str(REPO)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1)
            return server, url
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError("the server did not come up in two minutes")


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Yield the address of an app on `root`."""
    server, url = served(root)
    try:
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def visit(browser: Browser, address: str) -> tuple[Page, list[str]]:
    """Return the page after its script has ended, and the errors that it wrote to the console."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "console", lambda m: said.append(m.text) if m.type == "error" and OWN_404 not in m.location["url"] else None
    )
    page.goto(address)
    page.wait_for_selector("h1", timeout=60_000)
    came_to_rest(page)
    return page, said


def came_to_rest(page: Page) -> None:
    """Wait until the page's script has ended and the browser has drawn the page."""
    page.wait_for_selector('[data-test-script-state="notRunning"]', timeout=60_000)
    page.wait_for_timeout(300)


def sound(page: Page) -> None:
    """Check that the page has no traceback and no warning."""
    for bad in ("stException", "stAlertContentWarning", "stAlertContentError"):
        found = page.get_by_test_id(bad)
        assert found.count() == 0, found.first.inner_text()
