"""Charts and tables of the report against values worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa

from storage.reading.charts import as_svg, specs_of
from storage.reading.figures import FIGURES, Chart
from tasks.report.tables import cut, number, printed_table

ARMS = ("panel", "thinking")


def charts(figure: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return specs_of(FIGURES[figure].chart, pa.Table.from_pylist(rows), ARMS)


def words(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text")]


def test_a_line_goes_from_corner_to_corner() -> None:
    """Held-out accuracy 0 at step 0 and 1 at step 10: the frame is 400 by 260, and its axis is in percent."""
    [spec] = charts("curves", [{"arm": "panel", "step": s, "heldout_rate": s / 10} for s in (0, 10)])
    svg = as_svg(spec)
    assert 'd="M0,260L400,0"' in svg and "100%" in words(svg) and {"step", "held-out accuracy"} <= {*words(svg)}
    assert as_svg(spec) == svg


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


<<<<<<< HEAD
def test_names_of_bars_are_whole_and_counts_stand_in_them() -> None:
    rows = [{"source": "synthetic_stories", "arm": "thinking", "all_zero": 1, "variance": 2, "all_one": 3}]
    [spec] = charts("band_sources", rows)
    assert {"synthetic_stories · thinking", "1", "2", "3", "100%"} <= {*words(as_svg(spec))}


def test_ticks_of_a_log_axis_are_doublings_or_what_was_measured() -> None:
    def ticks(xs: list[float]) -> list[float]:
        [spec] = charts("passk", [{"arm": "panel", "step": 0, "k": x, "pass_at_k": 0.5} for x in xs])
        return spec["encoding"]["x"]["axis"]["values"]

    assert ticks([*range(1, 17)]) == [1, 2, 4, 8, 16]
    assert ticks([26.3, 52.6]) == [26.3, 52.6]


def test_steps_are_whole_on_an_axis() -> None:
    rows = [{"arm": "panel", "seed": 0, "step": step, "entropy": 0.5} for step in (1, 2, 3)]
    [spec] = charts("entropy", rows)
    assert [word for word in words(as_svg(spec)) if word in ("1", "2", "3")] == ["1", "2", "3"]


def test_cross_tab_of_the_study_sums_up() -> None:
    table = [[232, 137, 108], [30, 72, 280], [0, 0, 18]]
    bands = ("all_zero", "variance", "all_one")
    rows = [
        {"arm": "panel", "other": "thinking", "band": a, "other_band": b, "count": table[i][j]}
        for i, a in enumerate(bands)
        for j, b in enumerate(bands)
    ]
    [spec] = charts("crosstab", rows)
    counts = [cell["count"] for cell in spec["data"]["values"]]
    assert counts == [232, 137, 108, 477, 30, 72, 280, 382, 0, 0, 18, 18, 262, 209, 406, 877]
    assert "877" in words(as_svg(spec))


def test_points_carry_their_names_and_intervals() -> None:
    ends = {"x_low": 5.0, "x_high": 15.0, "y_low": None, "y_high": None}
    rows = [{"arm": "panel", "name": name, "x": x, "y": -x} | ends for name, x in (("GRPO", 10.0), ("a<b", 0.0))]
    chart = Chart(kind="points", x="x", y="y", x_name="x", y_name="y", label="name")
    [spec] = specs_of(chart, pa.Table.from_pylist(rows), ARMS)
    assert {"GRPO", "a<b"} <= {*words(as_svg(spec))}


def test_labels_are_text() -> None:
    rows = pa.Table.from_pylist([{"arm": "<b>x</b>", "step": s, "heldout_rate": 0.5} for s in (0, 1)])
    [spec] = specs_of(FIGURES["curves"].chart, rows, ["<b>x</b>"])
    assert "<b>" not in as_svg(spec) and "<b>x</b>" in words(as_svg(spec))
    assert as_pdf(spec).startswith(b"%PDF-")


=======
>>>>>>> e575ced2 (Cut tests whose lines and rules another test covers)
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
