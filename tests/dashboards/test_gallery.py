"""The gallery: chosen problems of a run, side by side, in one file that runs nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cli.export import export
from dashboards.gallery import Item, Page, from_report, write
from dashboards.text import ELEMENTS, mathml, pieces
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.reading.query_cache import reports
from tests.dashboards.conftest import Study
from tests.report.test_report import Page as Parsed

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def test_a_run_side_by_side(demo_store: Path, tmp_path: Path) -> None:
    [report] = reports(demo_store)
    every = from_report(demo_store, report.ref, [], "final", 1)
    chosen = every.items[3].title.rpartition(" ")[2]
    page = from_report(demo_store, report.ref, [chosen[:10]], "final", 2)
    assert len(every.items) == 12 and [item.title for item in page.items] == [every.items[3].title]
    policies = [shown["policy"] for shown in page.items[0].rollouts]
    assert policies == [
        p for p in ("panel, start", "panel, step 4", "thinking, start", "thinking, step 4") for _ in "ab"
    ]
    rows = [
        row
        for ref in Store(demo_store).manifest(Ref.parse(report.ref)).input_refs
        if ref.kind == "rollouts"
        for row in Store(demo_store).read(ref, ["problem_id", "arm", "completion", "verdict"]).to_pylist()
        if row["problem_id"] == chosen
    ]
    known = {(row["arm"], letters(row["completion"]), row["verdict"]) for row in rows}
    for shown in page.items[0].rollouts:
        text = letters("".join(p.text for p in shown["text"]))
        assert (shown["arm"], text, shown["verdict"]) in known
    words = ["gallery", report.ref, "--root", str(demo_store), "-o", str(tmp_path / "g.html"), "--json"]
    done = CliRunner().invoke(export, [*words, "--problems", chosen], catch_exceptions=False)
    html = Path(json.loads(done.stdout)["file"]).read_text()
    assert not Parsed(html).tags & {"script", "img", "link", "iframe"} and "default-src 'none'" in html


def test_a_problem_that_a_run_does_not_have_is_told(study: Study) -> None:
    for problem, fits in (("zzz", 0), ("p00", 4)):
        with pytest.raises(UserError, match=f"problem '{problem}' matches {fits} problems"):
            from_report(study.root, str(study.report), [problem], "final", 1)


def test_a_gallery_on_a_phone_and_in_the_dark(study: Study, browser, tmp_path: Path) -> None:
    target = write(from_report(study.root, str(study.report), [], "screenings", 2), tmp_path / "g.html")
    page = browser.new_page(viewport={"width": 390, "height": 900}, color_scheme="dark")
    heard: list[str] = []
    page.on("console", lambda m: heard.append(m.text))
    page.goto(target.as_uri())
    assert heard == [] and page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("window.hacked") is None
    page.close()


@pytest.mark.parametrize(
    "formula",
    [
        r"\text{<b>x</b>}",
        r"\href{javascript:alert(1)}{x}",
        r"\style{color:red}{x}",
        "<script>alert(1)</script>",
        r'\href{" onclick="alert(1)}{x}',
        "a & b",
        "{" * 900,
        r"\text{&lt;img src=x&gt;}",
    ],
)
def test_a_formula_runs_nothing_whatever_it_says(formula: str) -> None:
    """It becomes layout elements alone, or is shown as written."""
    for display in (True, False):
        made = mathml(formula, display=display)
        assert made == "" or set(re.findall(r"<(\w+)", made)) <= ELEMENTS
        assert not re.search(r"href|style=|onclick|src=", re.sub(r">[^<]*<", "><", made))


def test_a_process_that_is_to_stop_does_so_within_a_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other errors of the converter mean a malformed formula, which is shown as written."""

    def stopped(*_: object, **__: object) -> str:
        raise Parked("stopped")

    monkeypatch.setattr("latex2mathml.converter.convert", stopped)
    with pytest.raises(Parked):
        mathml("x + 41", display=False)


def test_formulas_of_a_trace_are_set(browser: Browser, tmp_path: Path) -> None:
    """The browser sets them: a fraction is taller than a letter, and its LaTeX is not shown."""
    item = Item("p", pieces(r"Half: \(\frac{1}{2}\) and $$x^{2}$$ and \(\frac{\)"), {}, [])
    written = write(Page("t", "s", {}, [item]), tmp_path / "g.html")
    page = browser.new_page()
    page.set_content(written.read_text())
    assert page.locator("math").count() == 2 and page.locator(".problem .math").inner_text() == r"\frac{"
    tall = "e => e.getBoundingClientRect().height"
    assert page.locator("mfrac").evaluate(tall) > 1.5 * page.locator("mn").first.evaluate(tall)
    page.close()
