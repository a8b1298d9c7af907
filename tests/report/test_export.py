"""Figures and tables as files for a paper: whole, of the report's own numbers, and read by others."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.csv
import pytest
from click.testing import CliRunner

from cli.exporting import export
from storage.reading.query_cache import ask
from tasks.report.pdf import as_pdf
from tasks.report.svg import mark, svg, text
from tests.dashboards.conftest import Study


def exported(study: Study, folder: Path, *words: str) -> list[Path]:
    done = CliRunner().invoke(export, [*words, "--root", str(study.root), "-o", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [Path(line) for line in done.output.splitlines()]


def pages_of(data: bytes) -> list[str]:
    """What is drawn on each page, in PDF's operators."""
    assert data.startswith(b"%PDF-") and data.rstrip().endswith(b"%%EOF")
    streams = re.findall(rb"stream\n(.*?)\nendstream", data, re.DOTALL)
    return [body.decode("latin-1") for body in map(zlib.decompress, streams) if b" Tf" in body or b" re" in body]


def test_a_mark_and_a_word_by_hand() -> None:
    """The first style is #0072B2, a circle; what ends at 10 begins two letters `i` of Helvetica, 0.222 each, before."""
    drawing = svg([mark(0, 5, 4), text(10, 10, "i−i", anchor="end")], "x", width=40, height=20)
    (page,) = pages_of(as_pdf([drawing]))
    assert as_pdf([drawing]) == as_pdf([drawing])
    assert re.search(r"0 \.4471\d* \.698\d* rg", page.replace("0.", ".")), page
    at = re.search(r"([\d.]+) -?[\d.]+ Tm .*\(i-i\) Tj", page, re.DOTALL)
    assert at and float(at[1]) == pytest.approx(10 - (2 * 0.222 + 0.333) * 12, abs=0.01), page


@pytest.mark.parametrize("name", ["bands", "passk", "crosstab", "diversity_pairs", "reward"])
def test_a_figure_is_the_reports_drawing(name: str, study: Study, tmp_path: Path) -> None:
    (path,) = exported(study, tmp_path, "figure", name)
    pages = pages_of(path.read_bytes())
    drawings = exported(study, tmp_path, "figure", f"report_{name}", "--format", "svg")
    assert path.name == f"{name}.pdf" and len(pages) == len(drawings)
    for page, drawing in zip(pages, drawings, strict=True):
        words = [
            e.text for e in ElementTree.fromstring(drawing.read_text()).iter() if e.tag.endswith("}text") and e.text
        ]
        assert page.count(" Tj") == len(words) > 3
        inside = re.search(r'<svg[^>]*viewBox="([^"]+)"', drawing.read_text())
        assert inside and inside[1] in study.page("report.html")


def test_a_table_has_every_digit_and_every_row(study: Study, tmp_path: Path) -> None:
    (path,) = exported(study, tmp_path, "table", "gains")
    rows = ask(study.root, str(study.report), "report_gains")
    read = pyarrow.csv.read_csv(path)
    assert read.column_names == rows.column_names
    assert read["gain"].to_pylist() == rows["gain"].to_pylist()
    (path,) = exported(study, tmp_path, "table", "diversity_pairs", "--format", "latex")
    latex = path.read_text()
    assert latex.count(r"\\") == ask(study.root, str(study.report), "report_diversity_pairs").num_rows + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("figure", "gainz"), "no figure or table 'gainz'; did you mean 'gains'?"),
        (("figure", "audit"), "audit: nothing of it is drawn; its numbers: varband export table audit"),
        (
            ("figure", "bands", "--format", "csv"),
            "--format csv: a figure is exported as pdf or svg; csv is of a table: varband export table",
        ),
        (
            ("table", "bands", "--format", "pdf"),
            "--format pdf: a table is exported as csv or latex; pdf is of a figure: varband export figure",
        ),
        (("table", "bands", "--format", "xlsx"), "--format xlsx: a table is exported as csv or latex"),
    ],
)
def test_what_is_not_there_is_one_sentence(words: tuple[str, ...], said: str, study: Study) -> None:
    done = CliRunner().invoke(export, [*words, "--root", str(study.root)])
    assert said in str(done.exception) and "\n" not in str(done.exception)


def test_any_other_word_is_a_folder(study: Study, tmp_path: Path) -> None:
    done = CliRunner().invoke(export, ["--without", "weights", str(tmp_path / "copy"), "--root", str(study.root)])
    assert done.exit_code == 0 and "artifacts" in done.output and (tmp_path / "copy").is_dir()
