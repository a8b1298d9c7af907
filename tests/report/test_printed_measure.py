"""A printed measure is two files: its table, and its figure with the query. Nothing else names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage.artifacts.kinds import Votes
from tasks.measures.standard import standard_measure
from tasks.stage import stage

REPO = Path(__file__).resolve().parents[2]
MEASURE = '''
"""Screening by band: how many of an arm's trainable problems lie in each band, and how far apart their traces are."""

import pyarrow as pa

from storage.artifacts.kinds import Bands, Diversity, Splits
from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.sql import query
from tasks.measures.standard import standard_measure
from tasks.stage import stage, store


class BandShares(Ref, kind="band_shares", schema=nullable("arm str, band str, trainable big, widest real")):
    """Trainable problems of each band."""


@standard_measure("band_shares", spread="diversities")
@stage(BandShares, version=1)
def share_bands(*, bands: tuple[Bands, ...], splits: Splits, spread: tuple[Diversity, ...]) -> pa.Table:
    """One row an arm and band."""
    return query(
        "select arm, band, count(*) as trainable, (select max(diversity) from spread) as widest from bands"
        " join splits using (problem_id) where split = 'train' group by all order by all",
        bands=pa.concat_tables([store().read(ref) for ref in bands]),
        splits=store().read(splits),
        spread=pa.concat_tables([store().read(ref) for ref in spread]),
    ).cast(BandShares.schema)
'''
FIGURE = """/*
section = "bands"
place = 15
title = "Trainable problems of each band"
caption = "Held-out problems are left out."
sources = ["band_shares"]
chart = { kind = "bars", labels = ["arm"] }
*/
select arm, max(trainable) filter (band = 'all_zero') as all_zero, max(trainable) filter (band = 'variance') as variance,
    max(trainable) filter (band = 'all_one') as all_one, max(widest) as widest
from band_shares join arms using (arm) group by arm, place order by place
"""
#: In the copy: a study's report, what the app reads of it, and the plan of a whole experiment.
LOOK = """
from pathlib import Path
from flows.experiment import experiment
from flows.running.sessions import stages_of
from flows.study.profiles import DEMO
from storage.artifacts.store import Store
from storage.reading.figures import on_page
from storage.reading.query_cache import ask, sources
from tests.dashboards.synthetic import made_up_study
from tests.flows.running.test_plan import study_of

root = Path("store")
report = made_up_study(root, problems=16, steps=0, benchmarks=False)
page = (Store(root).files(report) / "report.md").read_text()
assert page.count("Trainable problems of each band") == 1
assert page.index("Problems by band") < page.index("Trainable problems") < page.index("Bands by source")
assert "<svg" in (Store(root).files(report) / "report.html").read_text().split("Trainable problems")[1][:4000]
assert "share_bands" in (Store(root).files(report) / "report.html").read_text(), "its recipe is among the sources"
rows = ask(root, str(report), "report_band_shares").to_pylist()
assert [row["arm"] for row in rows] == ["panel", "thinking"] and rows[0]["widest"] > 0, rows
assert sum(rows[0][band] or 0 for band in ("all_zero", "variance", "all_one")) == 12, rows
shown = page.split("Trainable problems of each band")[1].split("|\\n\\n")[0]
assert all(str(row["variance"]) in shown and row["arm"] in shown for row in rows), shown
assert "band_shares" in [figure.name for section in on_page("bands") for figure in section.figures]
assert len(sources(root, str(report), ("band_shares",))) == 1
with stages_of(study := study_of(DEMO, Path(".")), Store(root), planning=True) as planning:
    experiment(study)
assert [step.recipe.stage for step in planning.steps].count("share_bands") == 1
"""


@pytest.mark.slow
def test_a_printed_measure_is_two_files(tmp_path: Path) -> None:
    for room in ("flows", "storage", "tasks", "tests", "models"):
        shutil.copytree(REPO / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "tasks" / "measures" / "band_shares.py").write_text(MEASURE)
    (tmp_path / "storage" / "reading" / "queries" / "report_band_shares.sql").write_text(FIGURE)
    assert len({path for path in tmp_path.rglob("*") if path.is_file()} - before) == 2
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_argument_that_no_study_has_is_refused_where_it_is_declared() -> None:
    @stage(Votes, version=1)
    def measure_nothing(*, moonlight: tuple[Votes, ...]) -> None: ...  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="a standard measure cannot take moonlight"):
        standard_measure("nothing")(measure_nothing)  # type: ignore[arg-type]
