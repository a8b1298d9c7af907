"""The app in a real browser on what people have: a finished demo, the replayed published study, a run that is going."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.store import Store
from storage.reading.query_cache import ask, reports
from storage.records.runs import all_runs, write_run
from tests.dashboards.made_up_rows import run_under_way
from tests.dashboards.visits import PAGES, came_to_rest, serving, sound, visit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(demo_store: Path, browser) -> Iterator[str]:
    with serving(demo_store) as address:
        yield address


@pytest.fixture(scope="module")
def published_app(replayed: Path, browser) -> Iterator[str]:
    with serving(replayed) as address:
        yield address


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_the_demo(browser, demo: str, demo_store: Path, name: str) -> None:
    page, said = visit(browser, f"{demo}/{name}")
    assert said == []
    sound(page)
    charts = {"bands": 3, "training": 2, "results": 2}.get(name, 0)
    page.wait_for_function(f"document.querySelectorAll('.stVegaLiteChart :is(canvas, svg)').length >= {charts}")
    if name == "":
        page.wait_for_function("document.querySelectorAll('.stGraphVizChart svg .node').length >= 15")
        [run] = all_runs(demo_store)
        page.wait_for_selector(f'[role="grid"]:has-text("finished{run.stages} of {run.stages}")', state="attached")
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_the_published_study(browser, published_app: str, name: str) -> None:
    page, said = visit(browser, f"{published_app}/{name}")
    assert said == []
    sound(page)
    expected = {"bands": "Two arms against each other", "claims": "of 86 hold", "results": "Gaps and their closure"}
    if name in expected:
        # attached: what stands in another tab than the first one is hidden
        page.wait_for_selector(f"text={expected[name]}", state="attached", timeout=60_000)
    page.close()


def test_a_filter_is_in_the_address_and_the_address_gives_the_filter(browser, demo: str, demo_store: Path) -> None:
    [report] = reports(demo_store)
    every: dict[str, object] = {"source": None, "arm": None, "band": None, "verdict": None, "search": None}
    fit = ask(demo_store, report.ref, "app_problems", every | {"set": "final", "source": "synthetic_mod"})[
        "problem_id"
    ].to_pylist()
    page, _ = visit(browser, f"{demo}/traces")
    page.get_by_role("combobox", name="Source").click()
    page.get_by_role("option", name="synthetic_mod").click()
    page.wait_for_selector(f"text=Problem ({len(fit)} fit)", timeout=60_000)
    came_to_rest(page)
    assert "source=synthetic_mod" in page.url and f"problem={fit[0]}" in page.url
    page.get_by_label("Search").fill(fit[1])
    page.get_by_label("Search").press("Enter")
    page.wait_for_selector("text=Problem (1 fit)", timeout=60_000)
    came_to_rest(page)
    address = page.url
    page.close()
    again, said = visit(browser, address)
    again.wait_for_selector("text=Problem (1 fit)", timeout=60_000)
    again.wait_for_selector(f"code:has-text('{fit[1]}')", timeout=60_000)
    assert f"search={fit[1]}" in again.url and said == []
    again.close()


def test_a_formula_is_set_and_tags_are_marked(browser, demo: str) -> None:
    page, _ = visit(browser, f"{demo}/traces")
    page.locator(".katex").first.wait_for(timeout=60_000)
    page.locator(".stMarkdownBadge", has_text="<mutipersonaDebate>").first.wait_for(timeout=60_000)
    page.close()


def test_no_such_run_and_no_such_problem(browser, demo: str) -> None:
    page, said = visit(browser, f"{demo}/traces?run=report-0000000000000000&problem=none")
    for words in ("No run report-0000000000000000 in this store", "Problem none does not fit"):
        page.locator(".stAlert", has_text=words).wait_for(timeout=60_000)
    assert said == [] and page.get_by_test_id("stException").count() == 0
    page.close()


def test_a_run_that_is_going_moves_without_a_reload(browser, demo_store: Path, tmp_path: Path) -> None:
    """A training writes its next checkpoint; the open page shows it at its next look. (A busy machine may take longer
    to draw it.)"""
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
    with serving(root) as address:
        page, said = visit(browser, f"{address}/training")
        page.wait_for_selector("text=3 of 10 stages", timeout=60_000)
        page.wait_for_selector("text=at step 2", timeout=60_000)
        at(3, 4)
        page.wait_for_selector("text=4 of 10 stages", timeout=30_000)
        page.wait_for_selector("text=at step 3", timeout=30_000)
        assert said == []
        sound(page)
        page.close()
