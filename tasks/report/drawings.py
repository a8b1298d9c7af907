"""From the rows of a named query to a chart: which column is where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tasks.report.charts import Pair, Point, Series, band_bars, heat_map, line_chart, paired_dots

Row = Mapping[str, Any]
Rows = Sequence[Row]
Styles = Mapping[str, int]
Drawing = Callable[[Rows, Styles], str | None]
BANDS = ("all_zero", "variance", "all_one")


def curve(x: str, y: str, x_name: str, y_name: str, *, share: bool = False, log_x: bool = False) -> Drawing:
    """One line per arm, seed and (where it is not the horizontal axis) step; `y_low` and `y_high` shade it.
    The policy before training is dashed."""

    def draw(rows: Rows, styles: Styles) -> str | None:
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
        return line_chart(series, x_name, y_name, share=share, log_x=log_x)

    return draw


def each(column: str, drawing: Callable[[Any], Drawing]) -> Drawing:
    """One chart for every value of a column. `drawing`: how the rows of one value are drawn."""

    def draw(rows: Rows, styles: Styles) -> str | None:
        parts = [drawing(value)(list(some), styles) for value, some in groupby(rows, key=lambda row: row[column])]
        return "".join(filter(None, parts)) or None

    return draw


def bars(label: Callable[[Row], str]) -> Drawing:
    """One bar a row, from its counts by band."""

    def draw(rows: Rows, styles: Styles) -> str | None:
        return band_bars([(label(row), {band: row[band] or 0 for band in BANDS}) for row in rows])

    return draw


def heat(rows: Rows, styles: Styles) -> str | None:
    """One map for every two arms."""
    drawn = []
    for (arm, other), cells in groupby(rows, key=lambda row: (row["arm"], row["other"])):
        counts = {(c["band"], c["other_band"]): c["count"] or 0 for c in cells if c["band"] is not None}
        drawn.append(heat_map((arm, other), BANDS, counts))
    return "".join(filter(None, drawn)) or None


def dots(rows: Rows, styles: Styles) -> str | None:
    """One chart for every two policies."""
    drawn = []
    for (phase, seed, arm, other), some in groupby(rows, key=lambda r: (r["phase"], r["seed"], r["arm"], r["other"])):
        pairs = list(some)
        when = f"{phase} training" + (f", seed {seed}" if seed is not None else "")
        drawn.append(
            paired_dots(
                [Pair(p["problem_id"], p["diversity"], p["other_diversity"]) for p in pairs],
                (arm, other),
                (styles.get(arm, 0), styles.get(other, 1)),
                (pairs[0]["mean"], pairs[0]["other_mean"]),
                f"diversity {when}",
            )
        )
    return "".join(filter(None, drawn)) or None
