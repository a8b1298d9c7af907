"""The app's pages on whole, empty, half-finished and damaged stores, without a browser."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.text import MARKS, MOST, literal, marked, pieces, plain
from storage.artifacts.store import Store
from storage.reading.query_cache import ask, reports
from storage.reading.recorded import live_steps
from storage.records.runs import write_run
from tests.dashboards.conftest import REPO, Study
from tests.dashboards.made_up_rows import run_under_way
from tests.dashboards.synthetic import made_up_study
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


def charts(block) -> list[dict[str, object]]:
    return [json.loads(chart.proto.spec) for chart in block.get("vega_lite_chart")]


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_the_run(opened, study: Study, page: str) -> None:
    app = opened(study.root, page)
    assert not app.exception
    assert not app.warning, [w.value for w in app.warning]
    assert app.subheader or app.info


def test_every_seeds_search_is_a_tree_of_its_own(opened, tmp_path: Path) -> None:
    made_up_study(tmp_path, problems=16, steps=2, seeds=(0, 1), benchmarks=False)
    app = opened(tmp_path, "search")
    [search] = [box for box in app.selectbox if box.label == "Search"]
    assert [o for o in search.options if "majority · panel" in o] == [
        "majority · panel · step 0",
        "majority · panel · step 2 · seed 0",
        "majority · panel · step 2 · seed 1",
    ]
    app = search.select_index(search.options.index("majority · panel · step 2 · seed 1")).run()
    [drawn] = app.get("graphviz_chart")
    rounds = [m.value for m in app.markdown if " · round " in m.value]
    assert len(rounds) == 8, "one seed's nodes alone"
    assert drawn.proto.spec.count(" -> ") == 7


def test_benchmarks_have_a_tab_where_the_run_has_some(opened, study: Study, tmp_path: Path) -> None:
    app = opened(study.root, "results")
    [tab] = [tab for tab in app.tabs if tab.label == "pass@k on benchmarks"]
    assert "pass@k by benchmark" in [s.value for s in tab.subheader]
    assert {"hard_ones", "all_of_them"} <= {chart.get("title") for chart in charts(tab)}
    made_up_study(tmp_path, problems=16, steps=0, benchmarks=False)
    assert "pass@k on benchmarks" not in [tab.label for tab in opened(tmp_path, "results").tabs]


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


def test_traces_are_found_by_their_address(opened, study: Study) -> None:
    app = opened(study.root, "traces", problem="p0004", set="final", source="sums")
    assert not app.exception
    chosen = {box.label.split(" ")[0]: box.value for box in app.selectbox}
    assert chosen["Problem"] == "p0004" and chosen["Source"] == "sums" and chosen["Rollouts"] == "final"


def test_filters_narrow_the_problems(study: Study) -> None:
    every: dict[str, object] = {"source": None, "arm": None, "band": None, "verdict": None, "search": None}

    def ids(**some: object) -> set[str]:
        return set(
            ask(study.root, str(study.report), "app_problems", every | {"set": "screenings"} | some)[
                "problem_id"
            ].to_pylist()
        )

    assert ids() == {f"p{i:04d}" for i in range(16)}
    assert ids(source="sums") == {f"p{i:04d}" for i in range(0, 16, 2)}
    assert ids(search="What is 3 + 0") == {"p0003"}
    bands = {band: ids(band=band, arm="panel") for band in ("all_zero", "variance", "all_one")}
    assert set.union(*bands.values()) == ids() and sum(map(len, bands.values())) == 16
    assert ids(verdict="timeout") == set()


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


def test_named_queries_are_remembered(study: Study) -> None:
    ask(study.root, str(study.report), "report_bands")
    began = time.process_time()
    for _ in range(50):
        ask(study.root, str(study.report), "report_bands")
    assert time.process_time() - began < 0.5


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


def test_dollars_that_are_money_stay() -> None:
    assert [p.kind for p in pieces("It costs $5 and $6.")] == ["text"]


@given(st.text(max_size=300))
def test_every_mark_of_markdown_is_escaped(text: str) -> None:
    shown = literal(text)
    bare = MARKS.sub("", plain(text))
    assert MARKS.sub("", shown.replace("  \n", "\n")) == bare.replace("\t", " ")
    for place, c in enumerate(shown):
        if MARKS.fullmatch(c) and c != "\\":
            assert shown[place - 1] == "\\"


@given(st.text(st.characters(exclude_categories=["Cf", "Cs"]), max_size=300))
def test_no_letter_is_lost_between_pieces(text: str) -> None:
    kept = "".join(p.text for p in pieces(text))
    assert [c for c in kept if c.isalnum()] == [c for c in text if c.isalnum()]


def test_hostile_rollouts_are_data() -> None:
    assert "<script" not in marked("<script>alert(1)</script>").replace(r"\<script", "")
    assert marked("![x](http://elsewhere/x.png)").startswith(r"\!\[x\]\(http")
    assert r"⟨U\+202E⟩" in marked("a\u202eb") and "\u202e" not in marked("a\u202eb")
    assert len(marked("x" * 100_000)) <= MOST
    assert "\x1b" not in marked("\x1b[31m")


def test_a_box_that_stands_alone_is_a_formula() -> None:
    """An arm may be asked for its answer in \\boxed{…}; dollars around it are nobody's duty."""
    text = r"So 7. </think> \boxed{\frac{1}{2}} or $\boxed{3}$, not \boxed{4"
    assert [(p.kind, p.text) for p in pieces(text) if p.kind in ("math", "display")] == [
        ("math", r"\boxed{\frac{1}{2}}"),
        ("math", r"\boxed{3}"),
    ]
    assert [p.kind for p in pieces(r"\boxed{$5} \boxed{" + "{" * 20_000)] == ["text"]
