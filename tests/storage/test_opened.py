"""The Python door, its notebook and CSV, on a finished study."""

import csv
import io
import json
import os
from pathlib import Path

import pytest

from storage.errors import UserError
from storage.reading.opened import notebook_of
from tests import warm
from varband import open_store


def test_tables_are_read_as_arrow_pandas_and_polars(demo_store: Path) -> None:
    store = open_store(demo_store)
    assert store.studies == ["demo"]
    study = store.study("demo")
    summary = study.table("summary")
    assert summary["arm"].to_pylist() == ["panel", "thinking"]
    assert summary.to_pandas()["problems"].tolist() == [64, 64]
    assert all(study.table(name).num_columns for name in study.tables)
    assert "<svg" in study.svg("answer_gain")
    assert study.rollouts().num_rows == 4 * 64
    assert store.sql("select count(*) as n from bands")["n"].to_pylist() == [128]
    polars = pytest.importorskip("polars")
    assert polars.from_arrow(summary)["arm"].to_list() == ["panel", "thinking"]


def test_wrong_names_are_refused_with_the_known_ones(demo_store: Path, tmp_path: Path) -> None:
    study = open_store(demo_store).study("demo")
    for wrong, words in (
        (lambda: open_store(tmp_path / "none"), "this folder does not exist"),
        (lambda: open_store(demo_store).study("other"), "no artifact, run or study 'other'"),
        (lambda: study.table("sumary"), "did you mean"),
        (lambda: study.svg("summary"), "no chart"),
    ):
        with pytest.raises(UserError, match=words):
            wrong()


def test_a_notebook_runs(demo_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(warm.REPO), os.environ.get("PYTHONPATH", "")]))
    written = notebook_of(open_store(demo_store).study("demo"))
    book = nbformat.reads(json.dumps(written), as_version=4)
    nbformat.validate(book)
    nbclient.NotebookClient(book, timeout=120).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = "".join(output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "panel" in texts and "thinking" in texts
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)


def test_the_command_writes_it_and_prints_csv(demo_store: Path, tmp_path: Path) -> None:
    words = ["--root", str(demo_store)]
    done = warm.run([warm.VARBAND, "export", "notebook", "demo", "-o", "n.ipynb", *words], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "n.ipynb").read_text())["nbformat"] == 4
    printed = warm.run([warm.VARBAND, "report", "demo", "--csv", *words], cwd=tmp_path)
    rows = [*csv.DictReader(io.StringIO(printed.stdout))]
    assert [row["arm"] for row in rows] == ["panel", "thinking"], printed.stderr
    bands = warm.run([warm.VARBAND, "report", "demo", "--csv", "--query", "bands", *words], cwd=tmp_path)
    assert bands.stdout.startswith('"arm"'), bands.stdout
