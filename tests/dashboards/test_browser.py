"""The app in a real browser on a made-up study: every page, addresses, hostile rollouts, and a server that dies."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.dashboards.conftest import Study
from tests.dashboards.visits import PAGES, served, serving, sound, visit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(study: Study, browser) -> Iterator[str]:
    with serving(study.root) as address:
        yield address


@pytest.mark.parametrize("name", PAGES)
def test_every_page_renders_without_errors(browser, url: str, name: str) -> None:
    page, said = visit(browser, f"{url}/{name}")
    assert said == []
    sound(page)
    page.close()


def test_a_phone_is_told_the_answer_first_and_needs_no_scrolling_sideways(browser, url: str) -> None:
    page, said = visit(browser, url)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector("text=How it was made", timeout=60_000)
    assert page.locator("h3").first.inner_text() == "The answer"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert said == []
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
