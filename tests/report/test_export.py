"""Figures and tables as files for a paper: whole, of the report's own numbers, and read by others."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.csv
import pytest
from click.testing import CliRunner

from cli.export import export
from storage.reading.query_cache import ask
from tests.dashboards.conftest import Study


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
        (("figure", "audit"), "audit has no chart; for its numbers: varband export table audit"),
    ],
)
def test_what_is_not_there_is_one_sentence(words: tuple[str, ...], said: str, study: Study) -> None:
    done = CliRunner().invoke(export, [*words, "--root", str(study.root)])
    assert said in str(done.exception) and "\n" not in str(done.exception)


def test_a_study_is_copied(study: Study, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        export, ["study", "--without", "weights", str(tmp_path / "copy"), "--root", str(study.root)]
    )
    assert done.exit_code == 0 and "artifacts" in done.output and (tmp_path / "copy").is_dir()
