"""From the rows of a named query to a chart: which column is where, as the figure declares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from storage.reading.figures import BANDS, Bars, Chart, Heat, Lines, Pairs, Points
from storage.reading.units import is_share
from tasks.report.charts import Pair, Point, Series, band_bars, heat_map, line_chart, paired_dots
from tasks.report.scatter import Spot, scatter

Row = Mapping[str, Any]
Rows = Sequence[Row]
Styles = Mapping[str, int]


def draw(chart: Chart | None, rows: Rows, styles: Styles) -> str | None:
    """The figure's SVG, or several; null for a table and where there is nothing to draw.
    styles: arm → place in ARM_STYLES."""
    match chart:
        case Lines(each=each):
            return _each(rows, lambda row: row[each] if each else "", lambda of, some: _lines(chart, some, styles, of))
        case Bars(labels=labels):
            return band_bars([(" · ".join(row[c] for c in labels), {b: row[b] or 0 for b in BANDS}) for row in rows])
        case Heat():
            return _each(rows, lambda row: (row["arm"], row["other"]), _heat)
        case Pairs():
            key = ("phase", "seed", "arm", "other")
            return _each(
                rows, lambda row: tuple(row[c] for c in key), lambda of, some: _pairs(chart, some, styles, *of)
            )
        case Points():
            return _each(rows, lambda row: row["arm"], lambda arm, some: _points(chart, some, styles.get(arm, 0)))
        case None:
            return None


def _each(rows: Rows, key: Callable[[Row], Any], one: Callable[[Any, Rows], str | None]) -> str | None:
    """One chart for every value of a key."""
    return "".join(filter(None, (one(value, list(some)) for value, some in groupby(rows, key=key)))) or None


def _lines(chart: Lines, rows: Rows, styles: Styles, of: str) -> str | None:
    """One line per arm, seed and (where it is not the horizontal axis) step. The policy before training is dashed."""
    x, y = chart.x, chart.y
    several = len({row.get("seed") for row in rows} - {None}) > 1
    steps = {row["step"] for row in rows} if x != "step" and rows and "step" in rows[0] else set()
    lines: dict[str, list[Point]] = {}
    look: dict[str, tuple[int, bool]] = {}
    for row in rows:
        if row[x] is None or row[y] is None:
            continue
        seed = f" seed {row['seed']}" if several and row.get("seed") is not None else ""
        step = f", step {row['step']}" if steps else ""
        name = f"{row['arm']}{seed}{step}"
        look[name] = (styles.get(row["arm"], 0), len(steps) > 1 and row["step"] == min(steps))
        lines.setdefault(name, []).append(Point(row[x], row[y], row.get(f"{y}_low"), row.get(f"{y}_high")))
    series = [Series(name, look[name][0], tuple(points), look[name][1]) for name, points in lines.items()]
    y_name = f"{chart.y_name} on {of}" if of else chart.y_name
    return line_chart(series, chart.x_name, y_name, share=is_share(y), log_x=chart.log_x)


def _heat(arms: tuple[str, str], rows: Rows) -> str | None:
    counts = {(c["band"], c["other_band"]): c["count"] or 0 for c in rows if c["band"] is not None}
    return heat_map(arms, BANDS, counts)


def _pairs(chart: Pairs, rows: Rows, styles: Styles, phase: str, seed: int | None, arm: str, other: str) -> str | None:
    when = f"{phase} training" + (f", seed {seed}" if seed is not None else "")
    return paired_dots(
        [Pair(row["problem_id"], row[chart.y], row[f"other_{chart.y}"]) for row in rows],
        (arm, other),
        (styles.get(arm, 0), styles.get(other, 1)),
        (rows[0]["mean"], rows[0]["other_mean"]),
        f"{chart.y_name} {when}",
    )


def _points(chart: Points, rows: Rows, style: int) -> str | None:
    def end(row: Row, column: str) -> tuple[float, float | None, float | None]:
        return row[column], row.get(f"{column}_low"), row.get(f"{column}_high")

    known = [row for row in rows if row[chart.x] is not None and row[chart.y] is not None]
    spots = [Spot(row[chart.label], end(row, chart.x), end(row, chart.y)) for row in known]
    return scatter(spots, style, chart.x_name, chart.y_name)
