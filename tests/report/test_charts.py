"""Charts and tables of the report against values worked out by hand."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from storage.reading.figures import FIGURES
from tasks.report.charts import Pair, Point, Series, band_bars, heat_map, line_chart, paired_dots
from tasks.report.drawings import draw
from tasks.report.svg import Scale, number, ticks
from tasks.report.tables import cut, shown

reals = st.floats(-1e9, 1e9, allow_nan=False)


@given(reals, st.floats(1e-6, 1e9))
def test_ticks_lie_inside_and_ascend(low: float, width: float) -> None:
    found = ticks(low, low + width)
    assert found == sorted(set(found)) and 1 <= len(found) <= 12
    slack = 1e-6 * max(abs(low), width)
    assert all(low - slack <= t <= low + width + slack for t in found)


def test_scale_maps_ends_to_ends() -> None:
    assert Scale(0, 10, 100, 200)(5) == 150
    assert Scale(1, 16, 0, 4, log=True)(4) == 2
    assert Scale(3, 3, 0, 10)(3) == 5


def test_a_line_ends_where_its_last_value_is() -> None:
    drawn = line_chart([Series("panel", 0, (Point(0, 0.0), Point(10, 1.0)))], "step", "rate", share=True)
    assert drawn is not None
    first, last = re.findall(r'<circle class="m s0" cx="([\d.]+)" cy="([\d.]+)"', drawn)[:2]
    assert first == ("62", "246") and last == ("458", "30")  # the frame's corners: 54+8 … 480-14-8, 290-44 … 30


def test_nothing_to_draw_is_null() -> None:
    assert line_chart([], "x", "y") is None
    assert band_bars([("panel", {"all_zero": 0, "variance": 0, "all_one": 0})]) is None
    assert heat_map(("a", "b"), ("all_zero",), {}) is None
    assert paired_dots([], ("a", "b"), (0, 1), (0.0, 0.0), "d") is None
    assert draw(FIGURES["entropy"].chart, [{"arm": "panel", "step": 1, "entropy": None}], {}) is None


def test_names_of_bars_are_whole_and_ticks_do_not_run_into_each_other() -> None:
    counts = {"all_zero": 1, "variance": 2, "all_one": 3}
    drawn = band_bars([("synthetic_stories · thinking", counts), ("one letter more than can be shown"[:29], counts)])
    assert drawn is not None and ">synthetic_stories · thinking<" in drawn and ">one letter more than can be…<" in drawn
    costs = (26.3, 31.1, 52.6, 62.2, 105.1, 124.4)
    drawn = line_chart([Series("panel", 0, tuple(Point(x, 0.5) for x in costs))], "tokens", "rate", log_x=True)
    assert drawn is not None and ">50<" in drawn and ">100<" in drawn and "26.3<" not in drawn
    drawn = line_chart([Series("panel", 0, tuple(Point(k, 0.5) for k in range(1, 17)))], "k", "rate", log_x=True)
    assert re.findall(r'y="262" text-anchor="middle" class="tick">(\d+)<', drawn or "") == ["1", "2", "4", "8", "16"]


def test_cross_tab_of_the_study_sums_up() -> None:
    cells = {
        ("all_zero", "all_zero"): 232,
        ("all_zero", "variance"): 137,
        ("all_zero", "all_one"): 108,
        ("variance", "all_zero"): 30,
        ("variance", "variance"): 72,
        ("variance", "all_one"): 280,
        ("all_one", "all_one"): 18,
    }
    drawn = heat_map(("panel", "thinking"), ("all_zero", "variance", "all_one"), cells)
    counts = re.findall(r'class="count[^"]*">([\d,]+)<', drawn or "")
    assert counts == [
        "232",
        "137",
        "108",
        "477",
        "30",
        "72",
        "280",
        "382",
        "0",
        "0",
        "18",
        "18",
        "262",
        "209",
        "406",
        "877",
    ]


def test_labels_are_text() -> None:
    drawn = line_chart([Series("<b>", 0, (Point(0, 1.0),))], "x", "y")
    assert drawn is not None and "<b>" not in drawn and "&lt;b&gt;" in drawn
    dots = paired_dots([Pair("<i>", 0.1, 0.2)], ("a", "b"), (0, 1), (0.1, 0.2), "d")
    assert dots is not None and "<i>" not in dots


def test_a_table_joins_intervals_and_names_what_is_missing() -> None:
    rows = [{"arm": "panel", "gain": 0.15, "gain_low": -0.01, "gain_high": 0.3, "entropy": None, "reason": None}]
    found = shown(rows, list(rows[0]))
    assert found.columns == ("arm", "gain")
    assert found.rows == (("panel", "+15 pp [−1, +30 pp]"),)
    assert found.note == "Not measured: entropy."
    long = shown(rows * 100, list(rows[0]))
    assert len(long.rows) == 60 and long.note.startswith("The first 60 of 100 rows.")


def test_text_is_cut_and_cannot_steer_a_terminal() -> None:
    assert cut("x" * 100_000).endswith("… (100,000 characters)") and len(cut("x" * 100_000)) < 350
    assert cut("a\nb\x1b[31m\x00") == "a⏎b\ufffd[31m\ufffd"
    assert number(float("nan")) == "–"
