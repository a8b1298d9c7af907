"""The app in a real browser: every page, addresses, hostile rollouts, and a server that dies."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.conftest import REPO, Study

pytest.importorskip("streamlit", reason="the dashboards need varband[app]")
PAGES = ("", "bands", "training", "results", "traces", "claims", "compare")
#: Streamlit looks for its server below a page's own address first.
OWN_404 = "_stcore"


def served(root: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-c",
        "from cli.main import main; main()",
        "serve",
        "--root",
        str(root),
        "--port",
        str(port),
    ]
    server = subprocess.Popen(command, cwd=REPO, env=os.environ | {"PYTHONPATH": str(REPO)}, stdout=subprocess.DEVNULL,
                              start_new_session=True)  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1)
            return server, url
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError("the server did not come up in two minutes")


@pytest.fixture(scope="module")
def url(study: Study, browser) -> Iterator[str]:
    server, address = served(study.root)
    yield address
    os.killpg(server.pid, signal.SIGTERM)
    server.wait()


def visit(browser, address: str) -> tuple[Any, list[str]]:
    """(page when its script has ended, errors it wrote to the console)."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "console", lambda m: said.append(m.text) if m.type == "error" and OWN_404 not in m.location["url"] else None
    )
    page.goto(address)
    page.wait_for_selector("h1", timeout=60_000)
    page.wait_for_selector('[data-test-script-state="notRunning"]', timeout=60_000)
    return page, said


@pytest.mark.parametrize("name", PAGES)
def test_every_page_renders_without_errors(browser, url: str, name: str) -> None:
    page, said = visit(browser, f"{url}/{name}")
    page.wait_for_timeout(500)
    assert said == []
    assert page.locator('[data-testid="stException"]').count() == 0
    assert page.locator('[data-testid="stAlertContentWarning"]').count() == 0
    page.close()


def test_nothing_in_a_rollout_is_executed(browser, url: str) -> None:
    page, said = visit(browser, f"{url}/traces?problem=p0000&set=screenings")
    page.wait_for_selector("text=window.hacked", timeout=60_000)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, section img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert said == []
    page.close()


def test_a_view_has_an_address(browser, url: str) -> None:
    page, _ = visit(browser, f"{url}/traces?problem=p0004&source=sums&set=final")
    assert "problem=p0004" in page.url and "source=sums" in page.url and "run=report-" in page.url
    page.get_by_role("link", name="Bands").click()
    page.wait_for_selector("text=Problems by band", timeout=60_000)
    assert "/bands" in page.url
    page.close()


def test_a_killed_server_leaves_the_store_as_it_was(browser, study: Study) -> None:
    def digest() -> dict[str, str]:
        return {
            str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(study.root.rglob("*")) if p.is_file()
        }

    before = digest()
    server, address = served(study.root)
    page, said = visit(browser, f"{address}/traces")  # a link to a page, on a server that nobody has visited
    assert page.inner_text("h1") == "Traces" and said == []
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    page.close()
    assert digest() == before
