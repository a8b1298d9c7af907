"""The steps that a person takes in Prefect's UI (3.7.7, first interface), for headless Chromium.

Its labels are not tied to inputs and its selects do not open on a synthetic click, hence the ways round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chromium import headless

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


@contextmanager
def browser(base: str, password: str) -> Iterator[UI]:
    with headless() as chromium:
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        page.add_init_script(f"localStorage.setItem('prefect-password', btoa({password!r}))")
        yield UI(page, base)


def playwright_timeout() -> type[Exception]:
    from playwright.sync_api import TimeoutError

    return TimeoutError


class UI:
    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base

    def open_custom_run(self, deployment: str) -> None:
        self.page.goto(f"{self.base}/deployments")
        self.page.locator("a[href*='/deployments/deployment/']").filter(has_text=re.compile(f"^{deployment}$")).click()
        self.page.locator("button.run-menu__run-button").click()
        self.page.get_by_text("Custom run").click()
        self.property("study").wait_for()

    def property(self, label: str, within: Locator | None = None, nth: int = 0) -> Locator:
        """The innermost part of the form with this label."""
        words = re.compile(rf"^{re.escape(label)}( \(Optional\))?$")
        found = (within or self.page).locator("span.schema-form-property__label").filter(has_text=words).nth(nth)
        return found.locator("xpath=ancestor::div[contains(concat(' ', @class, ' '), ' schema-form-property ')][1]")

    def choose(self, label: str, option: str, within: Locator | None = None, nth: int = 0) -> None:
        control = self.property(label, within, nth).locator("button.p-select-button__control").first
        choice = self.page.locator(".p-select-option").filter(has_text=re.compile(f"^{re.escape(option)}$")).first
        for _ in range(8):
            control.focus()
            self.page.keyboard.press("ArrowDown")
            with suppress(playwright_timeout()):
                self.page.locator(".p-select-option").first.wait_for(timeout=2000)
                if (search := self.page.get_by_placeholder("Search").last).is_visible():
                    search.fill(option)  # of many choices only the first are drawn
                choice.wait_for(timeout=2000)
                break
        choice.click()
        self.page.get_by_text(
            "Parameters", exact=True
        ).first.click()  # where several may be chosen, the choices stay open

    def number(self, label: str, value: str) -> None:
        """A number that may be None: switch it on first."""
        part = self.property(label)
        switch = part.get_by_text(re.compile("^(int|float)$"))
        if switch.count():
            switch.first.click()
        part.locator("input").first.fill(value)

    def add_settings(self, settings: dict[str, str]) -> None:
        for i, (field, value) in enumerate(settings.items()):
            part = self.property("Settings")
            part.get_by_role("button", name="Add item").last.click()
            self.choose("Field", field, part, nth=i)
            self.property("Value", part, nth=i).locator("textarea, input[type=text], input:not([type])").first.fill(
                value
            )

    def submit(self) -> str:
        """Start the run and open it; its id."""
        self.page.get_by_role("button", name="Submit").last.click()
        self.page.wait_for_url(re.compile(r"tab=Runs"))
        link = self.page.locator("a[href*='/runs/flow-run/']").first
        found = re.search(r"flow-run/([0-9a-f-]{36})", link.get_attribute("href") or "")
        assert found
        self.open_run(found[1])
        return found[1]

    def open_run(self, run: str) -> None:
        self.page.goto(f"{self.base}/runs/flow-run/{run}")

    def wait_for_state(self, state: str, seconds: float) -> None:
        badge = self.page.locator(".state-badge, .p-badge").filter(has_text=re.compile(f"^{state}$")).first
        badge.wait_for(timeout=seconds * 1000)

    def fill_resume(self, **values: str) -> None:
        """Open the form that a suspended run asks with, and fill it."""
        self.page.reload()  # the page may have heard of the state before the form that belongs to it
        self.page.get_by_role("button", name="Resume").first.click()
        modal = self.page.locator(".p-modal")
        modal.locator("span.schema-form-property__label").first.wait_for()
        for label, value in values.items():
            self.property(label, modal).locator("input").first.fill(value)

    def resume(self) -> None:
        self.page.locator(".p-modal").get_by_role("button", name="Submit").click()

    def shot(self, path: Path, height: int = 1000) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.set_viewport_size({"width": 1400, "height": height})
        self.page.wait_for_timeout(1500)
        self.page.screenshot(path=str(path))
