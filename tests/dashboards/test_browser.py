"""The app in a real browser: every page of a made-up study and a finished demo; addresses,
hostile rollouts, a phone, a server that dies, a run that is going; and the report on A4."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.store import Store
from storage.reading.query_cache import ask, reports
from storage.records.runs import all_runs, write_run
from tests.dashboards.conftest import Study
from tests.dashboards.made_up_rows import run_under_way
from tests.dashboards.visits import PAGES, came_to_rest, serving, sound, visit

pytestmark = pytest.mark.slow
UNFILTERED: dict[str, Any] = dict.fromkeys(("source", "arm", "band", "verdict", "search"))


@pytest.fixture(scope="module")
def address(browser, study: Study, demo_store: Path) -> Iterator[Callable[[str], str]]:
    """Return the function that gives the address of the app on the store `made up` or `demo`."""
    roots, urls = {"made up": study.root, "demo": demo_store}, dict[str, str]()
    with ExitStack() as servers:

        def of(name: str) -> str:
            if name not in urls:
                urls[name] = servers.enter_context(serving(roots[name]))
            return urls[name]

        yield of


@pytest.mark.parametrize("store", ["made up", "demo"])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_renders_without_errors(
    browser, address: Callable[[str], str], demo_store: Path, store: str, name: str
) -> None:
    page, errors = visit(browser, f"{address(store)}/{name}")
    assert errors == []
    sound(page)
    if store == "demo":
        charts = {"bands": 3, "training": 2, "results": 2}.get(name, 0)
        page.wait_for_function(f"document.querySelectorAll('.stVegaLiteChart :is(canvas, svg)').length >= {charts}")
    if (store, name) == ("demo", ""):
        [run] = all_runs(demo_store)
        page.wait_for_selector(f'[role="grid"]:has-text("finished{run.stages} of {run.stages}")', state="attached")
    page.close()


def test_a_phone_is_told_the_answer_first_and_needs_no_scrolling_sideways(browser, address) -> None:
    page, errors = visit(browser, address("made up"))
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector("text=How it was made", timeout=60_000)
    assert page.locator("h3").first.inner_text() == "Does a panel gain more than thinking?"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert errors == []
    page.close()


def test_nothing_in_a_rollout_is_executed(browser, address) -> None:
    page, errors = visit(browser, f"{address('made up')}/traces?problem=p0000&set=screenings")
    page.wait_for_selector("text=window.hacked", timeout=60_000)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, section img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert errors == []
    page.close()


def test_a_filter_is_in_the_address_and_the_address_gives_the_filter(browser, address, demo_store: Path) -> None:
    [report] = reports(demo_store)
    wanted: dict[str, object] = {**UNFILTERED, "set": "final", "source": "synthetic_mod"}
    fitting = ask(demo_store, report.ref, "app_problems", wanted)
    first, second, *_ = fitting["problem_id"].to_pylist()
    page, _ = visit(browser, f"{address('demo')}/traces")
    # a formula is set and tags are marked
    page.locator(".katex").first.wait_for(timeout=60_000)
    page.locator(".stMarkdownBadge", has_text="<mutipersonaDebate>").first.wait_for(timeout=60_000)
    page.get_by_role("combobox", name="Source").click()
    page.get_by_role("option", name="synthetic_mod").click()
    page.wait_for_selector(f"text=Problem ({fitting.num_rows} fit)", timeout=60_000)
    came_to_rest(page)
    assert "source=synthetic_mod" in page.url and f"problem={first}" in page.url and "run=report-" in page.url
    page.get_by_label("Search").fill(second)
    page.get_by_label("Search").press("Enter")
    page.wait_for_selector("text=Problem (1 fit)", timeout=60_000)
    came_to_rest(page)
    found = page.url
    page.get_by_role("link", name="Bands").click()
    page.wait_for_selector("text=Problems by band", timeout=60_000)
    assert "/bands" in page.url
    page.close()
    again, errors = visit(browser, found)
    again.wait_for_selector("text=Problem (1 fit)", timeout=60_000)
    again.wait_for_selector(f"code:has-text('{second}')", timeout=60_000)
    assert f"search={second}" in again.url and errors == []
    again.close()


def test_a_run_that_is_going_moves_without_a_reload(browser, demo_store: Path, tmp_path: Path) -> None:
    """A training writes its next checkpoint; the open page shows it at its next refresh."""
    from dashboards.runs import REFRESH_SECONDS

    assert REFRESH_SECONDS <= 5
    root = tmp_path / "store"
    shutil.copytree(demo_store, root)
    store = Store(root)
    training = store.refs("training")[0]
    steps: list[dict[str, Any]] = [{k: v for k, v in r.items() if k != "arm"} for r in store.read(training).to_pylist()]
    run = run_under_way()

    def at(step: int, done: int) -> None:
        folder = root / ".work" / "training-0123456789abcdef" / "checkpoints" / f"step-{step:04d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"step": step, "steps": steps[:step], "exposure": []}))
        write_run(root, run.model_copy(update={"stages_done": done}))

    at(2, 3)
    with serving(root) as url:
        page, errors = visit(browser, f"{url}/training")
        page.wait_for_selector("text=3 of 10 stages", timeout=60_000)
        page.wait_for_selector("text=at step 2", timeout=60_000)
        at(3, 4)
        page.wait_for_selector("text=4 of 10 stages", timeout=30_000)
        page.wait_for_selector("text=at step 3", timeout=30_000)
        assert errors == []
        sound(page)
        page.close()
