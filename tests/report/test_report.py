"""The report: true to its rows, bound to its sources, the same text every time, and nothing in it is executed."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from cli.export import export
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.charts import as_svg, specs_of
from storage.reading.figures import FIGURES, Chart, is_p_value
from storage.reading.query_cache import ask
from storage.reading.recorded import answering
from tasks.domain.scaffolds import PANEL
from tasks.report.tables import cut, number, printed_table
from tests.dashboards.conftest import Study
from tests.dashboards.synthetic import made_up_study

VOID = {"meta", "line", "circle", "rect", "polygon", "polyline", "br"}


class Page(HTMLParser):
    """The ids, links and tags of a page. Fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.targets += [given["href"] or ""] if "href" in given else []
        assert "src" not in given and not any(name.startswith("on") for name in given)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag


def without_clock(text: str) -> str:
    return re.sub(r"<time.*?</time>", "<time>", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def html(study: Study) -> str:
    return study.page("report.html")


def test_is_one_small_file_that_needs_no_network_and_every_link_arrives(html: str) -> None:
    assert len(html.encode()) < 5e6
    page = Page(html)
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert "default-src 'none'" in html
    assert len(page.ids) == len(set(page.ids))
    assert all(target.startswith("#") and target[1:] in page.ids for target in page.targets)


def test_every_figure_is_there_with_its_query_and_artifacts(html: str, study: Study) -> None:
    markdown = study.page("report.md")
    first = answering(study.root, str(study.report)).name
    assert f'id="fig-{first}"' in html and f'id="q-{first}"' in html
    for name, figure in ((name, figure) for name, figure in FIGURES.items() if figure.section != "answer"):
        assert f'id="fig-{name}"' in html and f'id="q-{name}"' in html
        assert figure.title in markdown and f"query `report_{name}`" in markdown
    assert "Not shown:" not in html


def test_it_says_what_was_run(html: str, study: Study) -> None:
    """The report names the changed settings, and the command that sets them."""
    for text in (html, MarkdownIt().render(study.page("report.md"))):
        words = unescape(text).replace("\\", "")
        assert "steps: 40 → 4" in words and "differs from the profile demo" in words
        assert "varband run demo --set training.steps=4" in words and "panel (tags mutipersonaDebate, answer;" in words
        said = [unescape(one) for one in re.findall(r"<pre>(?:<code>)?(.*?)(?:</code>)?</pre>", text, re.DOTALL)]
        for whole in (PANEL.prompt_text("{problem}"), "\nsteps = 4\n"):
            assert any(whole in one for one in said), whole


def test_same_experiment_same_text(study: Study, tmp_path: Path) -> None:
    again = Study(tmp_path, made_up_study(tmp_path, problems=16, steps=4, hostile=True))
    assert again.report == study.report
    for name in ("report.html", "report.md"):
        assert without_clock(again.page(name)) == without_clock(study.page(name))


def test_summary_is_what_the_rollouts_say(study: Study) -> None:
    store = Store(study.root)
    inputs = store.manifest(study.report).recipe.inputs
    rows = {row["arm"]: row for row in store.read(study.report).to_pylist()}
    assert list(rows) == ["panel", "thinking"]
    for text in inputs["final"]:
        rollouts = store.read(Ref.parse(text), ["arm", "step", "correct", "tag_valid"]).to_pylist()
        share = sum(r["correct"] for r in rollouts) / len(rollouts)  # equal groups: mean of means is the mean
        column = "heldout_after" if rollouts[0]["step"] else "heldout_before"
        if rollouts[0]["step"]:
            invalid = sum(not r["tag_valid"] for r in rollouts) / len(rollouts)
            assert rows[rollouts[0]["arm"]]["invalid_tags"] == pytest.approx(invalid)
            assert 0 < invalid < 1
            assert rows[rollouts[0]["arm"]]["no_answer"] == rows[rollouts[0]["arm"]]["truncated"] == 0
        assert rows[rollouts[0]["arm"]][column] == pytest.approx(share)
    for row in rows.values():
        assert row["all_zero"] + row["variance"] + row["all_one"] == row["problems"] == 16
        assert row["gain"] == pytest.approx(row["heldout_after"] - row["heldout_before"])
        assert row["gain_low"] <= row["gain"] <= row["gain_high"]


def test_a_gain_is_one_number_on_the_whole_page(study: Study) -> None:
    """Every gain on the page is that of the final evaluation. The curve has other rollouts, so its difference differs."""

    def rows(name: str) -> list[dict[str, Any]]:
        return ask(study.root, str(study.report), f"report_{name}").to_pylist()

    gains = {row["arm"]: row for row in rows("gains") if row["source"] == "all"}
    [costs] = [Store(study.root).read(ref).to_pylist() for ref in Store(study.root).refs("tokens")]
    for row in rows("summary"):
        for name in ("gain", "gain_low", "gain_high"):
            assert gains[row["arm"]][name] == pytest.approx(row[name]), name
        at = {"metric": "tokens_per_correct", "source": "all", "arm": row["arm"], "step": 4}
        [cost] = [r["estimate"] for r in costs if at.items() <= r.items()]
        assert row["tokens_per_correct"] == pytest.approx(cost)
    apart = rows("difference_of_gains")[0]
    both = pytest.approx(gains[apart["arm"]]["gain"]), pytest.approx(gains[apart["other"]]["gain"])
    assert (apart["source"], apart["gain"], apart["other_gain"]) == ("all", *both)
    curve = {(r["arm"], r["step"]): r["heldout_rate"] for r in rows("curves")}
    assert curve["panel", 4] - curve["panel", 0] != pytest.approx(gains["panel"]["gain"])


def test_each_of_several_seeds_has_its_own_interval(tmp_path: Path) -> None:
    """The intervals are close to those of a bootstrap over the same held-out problems."""
    store = Store(tmp_path)
    report = made_up_study(tmp_path, problems=80, steps=2, seeds=(0, 1))
    rates: dict[tuple[str, int | None], list[float]] = {}
    for text in store.manifest(report).recipe.inputs["final"]:
        rows = store.read(Ref.parse(text)).to_pylist()
        by_problem = {row["problem_id"]: [] for row in rows}
        for row in rows:
            by_problem[row["problem_id"]].append(row["correct"])
        key = (rows[0]["arm"], rows[0]["seed"] if rows[0]["step"] else None)
        rates[key] = [sum(group) / len(group) for _, group in sorted(by_problem.items())]
    summary = store.read(report).to_pylist()
    assert [(row["arm"], row["seed"]) for row in summary] == [(a, s) for a in ("panel", "thinking") for s in (0, 1)]
    for row in summary:
        gains = np.subtract(rates[row["arm"], row["seed"]], rates[row["arm"], None])
        draws = np.random.default_rng(0).choice(gains, (20_000, len(gains))).mean(axis=1)
        assert row["gain"] == pytest.approx(gains.mean())
        assert (row["gain_low"], row["gain_high"]) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.02)


def test_what_a_run_does_not_have_is_said_or_left_out(tmp_path: Path) -> None:
    plain = Study(tmp_path, made_up_study(tmp_path, problems=16, steps=0, benchmarks=False))
    html = plain.page("report.html")
    assert "Nothing was trained in this run." in html and "Not shown:" not in html
    assert 'id="training"' not in html and 'id="benchmarks"' not in html
    assert Store(tmp_path).read(plain.report)["seed"].to_pylist() == [None, None]


def test_no_table_prints_a_p_value_uncorrected_alone(study: Study) -> None:
    for name in FIGURES:
        columns = ask(study.root, str(study.report), f"report_{name}").column_names
        corrected = ("p_adjusted", "_adjusted_p", "_corrected")
        for raw in (c for c in columns if is_p_value(c) and not c.endswith(corrected)):
            mate = "p_adjusted" if raw in ("p_value", "p_wilcoxon") else f"{raw}_corrected"
            assert mate in columns, (name, raw)


def test_renders_on_a_phone_and_in_the_dark(study: Study, browser, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text(study.page("report.html"))
    said: list[str] = []
    for width, scheme in ((390, "light"), (1280, "dark")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda m: said.append(m.text))
        page.goto(target.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("figure svg").count() >= 8
        assert "sans-serif" in page.evaluate("getComputedStyle(document.body).fontFamily")
        page.close()
    assert said == []


# Figures and tables as files for a paper.


def exported(study: Study, folder: Path, *words: str) -> list[Path]:
    done = CliRunner().invoke(export, [*words, "--root", str(study.root), "-o", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [Path(line) for line in done.output.splitlines()]


@pytest.mark.parametrize("name", ["bands", "passk", "crosstab", "diversity_pairs", "reward"])
def test_a_figure_is_the_reports_drawing(name: str, study: Study, tmp_path: Path) -> None:
    pages = exported(study, tmp_path, "figure", name)
    drawings = exported(study, tmp_path, "figure", f"report_{name}", "--format", "svg")
    assert [path.with_suffix("") for path in pages] == [path.with_suffix("") for path in drawings]
    for page, drawing in zip(pages, drawings, strict=True):
        assert page.read_bytes().startswith(b"%PDF-")
        shape = max(re.findall(r' d="([^"]+)"', drawing.read_text()), key=len)
        assert len(shape) > 20 and shape in study.page("report.html")


def test_a_table_has_every_row(study: Study, tmp_path: Path) -> None:
    (path,) = exported(study, tmp_path, "figure", "diversity_pairs", "--format", "tex")
    latex = path.read_text()
    assert latex.count(r"\\") == ask(study.root, str(study.report), "report_diversity_pairs").num_rows + 1


# Charts and tables of the report. Expected values are worked out by hand.

ARMS = ("panel", "thinking")


def charts(figure: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return specs_of(FIGURES[figure].chart, pa.Table.from_pylist(rows), ARMS)


def words(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text")]


def test_a_line_goes_from_corner_to_corner() -> None:
    """Accuracy is 0 at step 0 and 1 at step 10. The frame has 400 by 260 pixels; the axis is in percent."""
    [spec] = charts("curves", [{"arm": "panel", "step": s, "heldout_rate": s / 10} for s in (0, 10)])
    svg = as_svg(spec)
    assert 'd="M0,260L400,0"' in svg and "100%" in words(svg) and {"step", "held-out accuracy"} <= {*words(svg)}
    assert as_svg(spec) == svg
    rows = [{"arm": "panel", "seed": 0, "step": step, "entropy": 0.5} for step in (1, 2, 3)]
    [spec] = charts("entropy", rows)  # steps are whole
    assert [word for word in words(as_svg(spec)) if word in ("1", "2", "3")] == ["1", "2", "3"]


def test_a_drawing_is_made_without_a_network() -> None:
    """A fresh process in which no socket can be opened."""
    code = (
        "import socket; socket.socket.connect = None; from storage.reading.charts import as_pdf\n"
        "assert as_pdf({'description': '', 'data': {'values': [{'x': 1}]}, 'mark': 'point'}).startswith(b'%PDF-')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_nothing_to_draw_is_no_chart() -> None:
    assert charts("entropy", [{"arm": "panel", "step": 1, "entropy": None}]) == []
    assert charts("bands", [{"arm": "panel", "all_zero": 0, "variance": 0, "all_one": 0}]) == []
    nothing = pa.table({"arm": ["a"], "other": ["b"], "band": [None], "other_band": [None], "count": [None]})
    assert specs_of(Chart(kind="heat"), nothing, ARMS) == []


def test_a_table_joins_intervals_and_names_what_is_missing() -> None:
    rows = [{"arm": "panel", "gain": 0.15, "gain_low": -0.01, "gain_high": 0.3, "entropy": None, "reason": None}]
    found = printed_table(rows, list(rows[0]))
    assert found.columns == ("arm", "gain")
    assert found.rows == (("panel", "+15 pp [−1, +30 pp]"),)
    assert found.note == "Not measured: entropy."
    long = printed_table(rows * 100, list(rows[0]))
    assert len(long.rows) == 60 and long.note.startswith("The first 60 of 100 rows.")


def test_text_is_cut_and_cannot_steer_a_terminal() -> None:
    assert cut("x" * 100_000).endswith("… (100,000 characters)") and len(cut("x" * 100_000)) < 350
    assert cut("a\nb\x1b[31m\x00") == "a⏎b\ufffd[31m\ufffd"
    assert number(float("nan")) == "–"
