"""The app's pages on whole, empty, half-finished and damaged stores, without a browser."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.text import MARKS, literal, pieces, plain
from storage.artifacts.store import Store
from storage.reading.figures import FIGURES, SECTIONS
from storage.reading.query_cache import reports
from storage.reading.recorded import live_steps
from storage.records.runs import write_run
from storage.sql import QUERIES, named
from tests.dashboards.conftest import REPO, Study
from tests.dashboards.made_up_rows import run_under_way
from tests.storage.records.test_records import a_night

PAGES = ("overview", "bands", "training", "results", "search", "traces", "claims", "compare")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch):
    """Run one page on a store."""
    from streamlit.testing.v1 import AppTest

    def run(root: Path, page: str = "", **query: str):
        monkeypatch.setenv("VARBAND_ROOT", str(root))
        monkeypatch.syspath_prepend(str(REPO))
        app = AppTest.from_file(str(REPO / "tests" / "dashboards" / "one_page.py"), default_timeout=120)
        app.query_params["page"] = page
        for name, value in query.items():
            app.query_params[name] = value
        return app.run()

    return run


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_the_run(opened, study: Study, page: str) -> None:
    app = opened(study.root, page)
    assert not app.exception
    assert not app.warning, [w.value for w in app.warning]
    assert app.subheader or app.info


def test_nights_are_on_the_overview(opened, tmp_path: Path) -> None:
    assert "Nights" not in [s.value for s in opened(tmp_path, "overview").subheader]
    a_night("panel at step 40").keep(tmp_path)
    app = opened(tmp_path, "overview")
    assert not app.exception
    assert "Nights" in [s.value for s in app.subheader]
    assert any("panel at step 40" in frame.value.to_string() for frame in app.dataframe)


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_store_is_met_kindly(opened, tmp_path: Path, page: str) -> None:
    app = opened(tmp_path / "nothing", page)
    assert not app.exception
    assert "varband run demo" in " ".join(info.value for info in app.info)


def test_rollouts_that_are_no_text_are_shown_as_text(opened, study: Study) -> None:
    app = opened(study.root, "traces", problem="p0000", set="screenings")
    assert not app.exception
    shown = "\n".join(m.value for m in app.markdown)
    assert "<script>" not in shown and r"\<script\>" in shown
    assert "\u202e" not in shown
    assert any("characters" in c.value for c in app.caption)


def test_a_run_that_is_going_shows_its_steps(opened, study: Study, tmp_path: Path) -> None:
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
    app = opened(root, "training")
    assert not app.exception
    assert "Now" in [s.value for s in app.subheader]


def test_a_half_finished_checkpoint_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / ".work" / "training-0123456789abcdef" / "checkpoints" / "step-0001"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"step": 1, "steps": [{"st')
    assert live_steps(tmp_path).num_rows == 0


def test_an_artifact_that_is_gone_or_older_is_explained(opened, study: Study, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(study.root, root)
    store = Store(root)
    shutil.rmtree(store.path(store.refs("passk")[0]))
    app = opened(root, "results")
    assert not app.exception
    assert any("was deleted" in w.value for w in app.warning)
    older = tmp_path / "older"
    shutil.copytree(study.root, older)
    manifest = Store(older).path(study.report) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"arms"', '"branches"'))
    assert reports(older) == ()
    app = opened(older, "overview")
    assert not app.exception and app.info


def test_an_unknown_run_in_the_address_is_said(opened, study: Study) -> None:
    app = opened(study.root, "bands", run="report-0000000000000000")
    assert not app.exception
    assert any("No run" in w.value for w in app.sidebar.warning)


# Rollouts on a page: literal, whatever they hold.


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


FIGURES_PAGES = ("overview", "bands", "training", "results", "search", "claims")


@pytest.fixture(scope="module")
def app_text(study: Study) -> tuple[set[str], set[str]]:
    """Subheaders and captions of all pages that show figures."""
    from streamlit.testing.v1 import AppTest

    titles: set[str] = set()
    captions: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VARBAND_ROOT", str(study.root))
        patch.syspath_prepend(str(REPO))
        for page in FIGURES_PAGES:
            app = AppTest.from_file(str(REPO / "tests" / "dashboards" / "one_page.py"), default_timeout=120)
            app.query_params["page"] = page
            app.run()
            titles |= {s.value for s in app.subheader}
            captions |= {re.sub(r"\\(.)", r"\1", c.value) for c in app.caption}
    return titles, captions


def test_every_query_of_the_report_has_a_figure() -> None:
    asked = {path.stem for path in QUERIES.glob("report_*.sql")}
    assert asked == {figure.query for figure in FIGURES.values()}
    assert len(FIGURES) == sum(len(section.figures) for section in SECTIONS)
    assert "section" not in named("report_votes"), "what is asked and shown is the query alone"


@pytest.mark.parametrize("name", [name for name, figure in FIGURES.items() if figure.section != "answer"])
def test_the_app_shows_what_the_report_shows(app_text: tuple[set[str], set[str]], study: Study, name: str) -> None:
    titles, captions = app_text
    figure = FIGURES[name]
    assert figure.title in titles and figure.caption in captions
    html = re.sub(r"&#39;", "'", study.page("report.html"))
    assert f"<b>{figure.title}.</b> {figure.caption}" in html.replace("&gt;", ">").replace("&lt;", "<")
