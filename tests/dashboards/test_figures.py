"""Report and app show the same figures: titles, captions, axes, shapes and colours are declared once."""

from __future__ import annotations

import re

import pytest

from storage.reading.figures import FIGURES, SECTIONS
from storage.sql import QUERIES, named
from tests.dashboards.conftest import REPO, Study

PAGES = ("overview", "bands", "training", "results", "search", "claims")


@pytest.fixture(scope="module")
def app_text(study: Study) -> tuple[set[str], set[str]]:
    """Subheaders and captions of all pages that show figures."""
    from streamlit.testing.v1 import AppTest

    titles: set[str] = set()
    captions: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VARBAND_ROOT", str(study.root))
        patch.syspath_prepend(str(REPO))
        for page in PAGES:
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
<<<<<<< HEAD


@pytest.mark.parametrize("figure", [f.query for section in on_page("search") for f in section.figures])
def test_every_figure_of_searches_has_rows(study: Study, figure: str) -> None:
    assert ask(study.root, str(study.report), figure).num_rows > 0


@pytest.mark.parametrize("figure", [f for f in CHARTED if f.chart and f.chart.kind == "lines"], ids=lambda f: f.name)
def test_axes_are_named_as_declared(study: Study, figure) -> None:
    try:
        table = ask(study.root, str(study.report), figure.query)
    except UserError:  # what the made-up study did not measure
        table = pa.table({})
    if table.num_rows == 0:
        assert figure.name in ("asymptotes", "reward_parts")
        return
    specs = specs_of(figure.chart, table, ("panel", "thinking"))
    assert specs
    html = study.page("report.html").split(f'id="fig-{figure.name}"')[1].split("</figure>")[0]
    assert html.count("<svg") == len(specs)
    assert html.count(f">{figure.chart.x_name}</text>") == html.count(f">{figure.chart.y_name}</text>") == len(specs)


def test_an_arm_has_one_colour_and_one_shape() -> None:
    rows = pa.table({"arm": ARMS, "step": [1] * 8, "k": [1] * 8, "pass_at_k": [0.5] * 8})
    [spec] = specs_of(FIGURES["passk"].chart, rows, ARMS)
    colour, shape = spec["encoding"]["color"]["scale"], spec["layer"][-1]["encoding"]["shape"]["scale"]
    colours, shapes = (dict(zip(scale["domain"], scale["range"], strict=True)) for scale in (colour, shape))
    for arm, place in styles(ARMS).items():
        assert (colours[arm], shapes[arm]) == (ARM_STYLES[place].light, ARM_STYLES[place].shape)
    assert colours["a"] == colours["g"] != colours["b"]
    assert len({style.light for style in ARM_STYLES}) == len({s.dark for s in ARM_STYLES}) == len(ARM_STYLES)
    assert len({style.shape for style in ARM_STYLES}) == len(ARM_STYLES)


def test_the_policy_before_training_is_dashed() -> None:
    rows = [{"arm": "a", "step": s, "k": k, "pass_at_k": 0.1 * k} for s in (0, 40) for k in (1, 2)]
    [spec] = specs_of(FIGURES["passk"].chart, pa.Table.from_pylist(rows), ("a",))
    stroke = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "line")["encoding"]["strokeDash"]
    assert stroke["scale"] == {"domain": [0, 40], "range": [[6, 4], [1, 0]]}
    assert 'stroke-dasharray="6,4"' in as_svg(spec)
=======
>>>>>>> e575ced2 (Cut tests whose lines and rules another test covers)
