"""The app's pages on whole, empty, half-finished and damaged stores, without a browser."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from dashboards.text import MARKS, literal, pieces, plain
from storage.artifacts.store import Store
from storage.reading.figures import FIGURES
from storage.reading.query_cache import reports
from storage.reading.recorded import first_screen, live_steps
from storage.records.runs import write_run
from tests.dashboards.conftest import REPO, Study
from tests.dashboards.made_up_rows import run_under_way
from tests.storage.records.test_records import a_night

PAGES = ("overview", "bands", "training", "results", "search", "traces", "audit")


def opened(root: Path, page: str = "", **query: str) -> AppTest:
    """Run one page on a store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VARBAND_ROOT", str(root))
        patch.syspath_prepend(str(REPO))
        app = AppTest.from_file(str(REPO / "tests" / "dashboards" / "one_page.py"), default_timeout=120)
        for name, value in {"page": page, **query}.items():
            app.query_params[name] = value
        app.run()
    assert not app.exception
    return app


@pytest.fixture(scope="module")
def pages(study: Study) -> dict[str, AppTest]:
    return {page: opened(study.root, page) for page in PAGES}


def test_pages_show_the_run(pages: dict[str, AppTest]) -> None:
    for app in pages.values():
        assert not app.warning, [w.value for w in app.warning]
        assert app.subheader or app.info


def test_an_empty_store_is_met_kindly_and_nights_are_on_the_overview(tmp_path: Path) -> None:
    for page in PAGES:
        assert "varband run demo" in " ".join(info.value for info in opened(tmp_path / "nothing", page).info)
    a_night("panel at step 40").keep(tmp_path)
    app = opened(tmp_path, "overview")
    assert "Nights" in [s.value for s in app.subheader]
    assert any("panel at step 40" in frame.value.to_string() for frame in app.dataframe)


def test_rollouts_that_are_no_text_are_shown_as_text(study: Study) -> None:
    app = opened(study.root, "traces", problem="p0000", set="screenings")
    shown = "\n".join(m.value for m in app.markdown)
    assert "<script>" not in shown and r"\<script\>" in shown
    assert "\u202e" not in shown
    assert any("characters" in c.value for c in app.caption)


def test_a_run_that_is_going_shows_its_steps(study: Study, tmp_path: Path) -> None:
    root = tmp_path / "store"
    training = "training-0123456789abcdef"
    folder = root / ".work" / training / "checkpoints" / "step-0002"
    folder.mkdir(parents=True)
    finished = Store(study.root).refs("training")[0]
    steps = [{k: v for k, v in row.items() if k != "arm"} for row in Store(study.root).read(finished).to_pylist()[:2]]
    (folder / "state.json").write_text(json.dumps({"step": 2, "recipe": "x", "steps": steps, "exposure": []}))
    (root / ".work" / "training-fedcba9876543210" / "checkpoints" / "step-0001").mkdir(parents=True)
    write_run(root, run_under_way())
    assert live_steps(root)["step"].to_pylist() == [1, 2]
    assert "Now" in [s.value for s in opened(root, "training").subheader]
    (folder / "state.json").write_text('{"step": 1, "steps": [{"st')  # half written
    assert live_steps(root).num_rows == 0


def test_an_artifact_that_is_gone_or_older_is_explained(study: Study, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(study.root, root)
    store = Store(root)
    shutil.rmtree(store.path(store.refs("passk")[0]))
    assert any("was deleted" in w.value for w in opened(root, "results").warning)
    older = tmp_path / "older"
    shutil.copytree(study.root, older)
    manifest = Store(older).path(study.report) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"arms"', '"branches"'))
    assert reports(older) == ()
    assert opened(older, "overview").info


def test_an_unknown_run_in_the_address_is_said(study: Study) -> None:
    app = opened(study.root, "bands", run="report-0000000000000000")
    assert any("No run" in w.value for w in app.sidebar.warning)


# The text of rollouts is shown literally.


def test_a_debate_is_taken_apart() -> None:
    text = (
        r"<mutipersonaDebate> Expert 1: Let \(r^2\). Expert 2: \[a \implies b\] </mutipersonaDebate> <answer>5</answer>"
    )
    assert [(p.kind, p.text) for p in pieces(text) if p.text.strip(" .")] == [
        ("tag", "<mutipersonaDebate>"),
        ("speaker", "Expert 1"),
        ("text", " Let "),
        ("math", "r^2"),
        ("speaker", "Expert 2"),
        ("display", r"a \implies b"),
        ("tag", "</mutipersonaDebate>"),
        ("tag", "<answer>"),
        ("text", "5"),
        ("tag", "</answer>"),
    ]


@given(st.text(max_size=300))
def test_every_mark_of_markdown_is_escaped(text: str) -> None:
    shown = literal(text)
    bare = MARKS.sub("", plain(text))
    assert MARKS.sub("", shown.replace("  \n", "\n")) == bare.replace("\t", " ")
    for place, c in enumerate(shown):
        if MARKS.fullmatch(c) and c != "\\":
            assert shown[place - 1] == "\\"


# Report and app show the same figures: titles, captions, axes, shapes and colours are declared once.


def test_the_app_shows_what_the_report_shows(pages: dict[str, AppTest], study: Study) -> None:
    titles = {s.value for app in pages.values() for s in app.subheader}
    captions = {re.sub(r"\\(.)", r"\1", c.value) for app in pages.values() for c in app.caption}
    html = unescape(study.page("report.html"))
    for figure in (figure for figure in FIGURES.values() if figure.section != "answer"):
        assert figure.title in titles and figure.caption in captions
        assert f"<b>{figure.title}.</b> {figure.caption}" in html
    first = first_screen(study.root, str(study.report))
    shown = {re.sub(r"\\(.)", r"\1", m.value) for m in pages["overview"].markdown}
    assert first["audit"] in captions and len(first["tiles"]) >= 4
    for tile in first["tiles"]:
        assert tile["title"] in captions and "  \n".join(" ".join(value) for value in tile["values"]) in shown
