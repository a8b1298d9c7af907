"""From the rows of a named query to a chart: which column is where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tasks.domain.charts import Point, Series, band_bars, line_chart

Rows = Sequence[Mapping[str, object]]
Styles = Mapping[str, int]
Draw = Callable[[Rows, Styles], str | None]


def curve(x: str, y: str, x_name: str, y_name: str, *, share: bool = False, log_x: bool = False) -> Draw:
    """One line per arm and seed; rows carry `arm`, perhaps `seed`, x, y and perhaps y_low and y_high."""

    def draw(rows: Rows, styles: Styles) -> str | None:
        seeds = {row.get("seed") for row in rows} - {None}
        lines: dict[str, list[Point]] = {}
        arms: dict[str, str] = {}
        for row in rows:
            if row[x] is None or row[y] is None:
                continue
            arm = str(row["arm"])
            name = f"{arm} seed {row['seed']}" if len(seeds) > 1 and row.get("seed") is not None else arm
            name = f"{name}, step {row['step']}" if "step" in row and x != "step" else name
            arms[name] = arm
            bounds = (_real(row.get(f"{y}_low")), _real(row.get(f"{y}_high")))
            lines.setdefault(name, []).append(Point(float(row[x]), float(row[y]), *bounds))  # type: ignore[arg-type]
        first: set[str] = set()
        series = []
        for name, points in lines.items():
            arm = arms[name]
            series.append(Series(name, styles.get(arm, 0), tuple(points), dashed=arm in first))
            first.add(arm)
        return line_chart(series, x_name, y_name, share=share, log_x=log_x)

    return draw


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def bars(label: Callable[[Mapping[str, object]], str]) -> Draw:
    def draw(rows: Rows, styles: Styles) -> str | None:
        return band_bars([(label(r), {b: int(r[b] or 0) for b in ("all_zero", "variance", "all_one")}) for r in rows])  # type: ignore[call-overload]

    return draw
