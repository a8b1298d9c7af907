"""Rows to Vega-Lite, as the figures declare it: an arm looks the same on every page, never by colour alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from storage.reading.figures import (
    ARM_STYLES,
    BAND_STYLES,
    BANDS,
    PAGE_STYLES,
    Band,
    Bars,
    Chart,
    Heat,
    Lines,
    Pairs,
    Points,
    styles,
)
from storage.reading.units import is_share

Spec = dict[str, Any]
Row = dict[str, Any]
HEIGHT = 300
#: Of letters beside what is drawn, as the report has them: Streamlit's own are 3.7 to 1.
SOFT = {"labelColor": PAGE_STYLES["soft"].light, "titleColor": PAGE_STYLES["soft"].light}
CONFIG = {"axis": SOFT, "legend": SOFT, "header": SOFT}
#: Strokes of the smallest step, the policy before training, of those between and of the last.
DASHED, DOTTED, SOLID = [6, 4], [2, 2], [1, 0]


def drawn(chart: Chart | None, rows: pa.Table, arms: Sequence[str]) -> list[Spec]:
    """A figure's charts; none for a table and where there is nothing to draw. arms: all of a run's, in their order."""
    match chart:
        case Lines(each=None):
            return lines(chart, rows, arms)
        case Lines(each=str(column)):
            parts = groupby(rows.to_pylist(), key=lambda row: row[column])
            return [
                spec | {"title": value}
                for value, some in parts
                for spec in lines(chart, pa.Table.from_pylist(list(some), schema=rows.schema), arms)
            ]
        case Bars(labels=labels):
            return [band_bars(rows, labels)]
        case Heat():
            return _each(rows, ("arm", "other"), heat)
        case Pairs(y=y):
            return _each(rows, ("phase", "seed", "arm", "other"), lambda some, *of: pairs(some, y, *of))
        case Points():
            return _each(rows, ("arm",), lambda some, arm: points(chart, some, styles(arms).get(arm, 0)))
        case _:
            return []


def _each(rows: pa.Table, key: tuple[str, ...], one: Callable[..., Spec]) -> list[Spec]:
    """One chart for every value of a key."""
    found = groupby(rows.to_pylist(), key=lambda row: tuple(row[name] for name in key))
    return [one(list(some), *of) for of, some in found]


def _spec(rows: Sequence[Row], height: float, **rest: Any) -> Spec:
    return {"data": {"values": list(rows)}, "width": "container", "height": height, "config": CONFIG, **rest}


def _field(name: str, kind: str = "quantitative", **rest: Any) -> Spec:
    return {"field": name, "type": kind, **rest}


def lines(chart: Lines, table: pa.Table, arms: Sequence[str], dash: str | None = None) -> list[Spec]:
    """One line per arm and per value of `dash`: else of seed or step, where there are several."""
    x, y = chart.x, chart.y
    rows = [row for row in table.to_pylist() if row[x] is not None and row[y] is not None]
    if not rows:
        return []
    several = [
        c for c in (dash, "seed", "step") if c in table.column_names and c != x and len({r[c] for r in rows}) > 1
    ]
    dash = several[0] if several else None
    present = {row["arm"] for row in rows}
    shown = {arm: ARM_STYLES[place] for arm, place in styles(arms).items() if arm in present}
    colours, shapes = [look.light for look in shown.values()], [look.shape for look in shown.values()]
    number_format: Spec = {"axis": {"format": "%"}} if is_share(y) else {}
    log_scale: Spec = {"scale": {"type": "log", "base": 2}} if chart.log_x else {}
    encoding: Spec = {
        "x": _field(x, title=chart.x_name, axis=_ticks(rows, x, chart.log_x), **log_scale),
        "y": _field(y, title=chart.y_name, **number_format),
        "color": _field(
            "arm", "nominal", title=None, legend={"symbolOpacity": 1}, scale={"domain": list(shown), "range": colours}
        ),
    }
    dashed: Spec = {"strokeDash": _field(dash, "nominal", title=dash, **_strokes(dash, rows))} if dash else {}
    if dash:
        encoding["detail"] = _field(dash, "nominal")
    shape = _field("arm", "nominal", title=None, scale={"domain": list(shown), "range": shapes})
    tips = [_field(name, "nominal") for name in ("arm", dash) if name] + [_field(x), _field(y)]
    layer: list[Spec] = []
    if f"{y}_low" in table.column_names:
        tips += [_field(f"{y}_{end}") for end in ("low", "high")]
        area = {"y": _field(f"{y}_low", title=chart.y_name, **number_format), "y2": {"field": f"{y}_high"}}
        layer.append({"mark": {"type": "area", "opacity": 0.14}, "encoding": area})
    layer.append({"mark": {"type": "line", "strokeWidth": 2}, "encoding": dashed})
    layer.append({"mark": {"type": "point", "filled": True, "size": 50}, "encoding": {"shape": shape, "tooltip": tips}})
    return [_spec(rows, HEIGHT, encoding=encoding, layer=layer)]


def _strokes(dash: str, rows: Sequence[Row]) -> Spec:
    if dash != "step":
        return {}
    steps = sorted({row["step"] for row in rows})
    return {"scale": {"domain": steps, "range": [DASHED, *[DOTTED] * (len(steps) - 2), SOLID]}}


def _ticks(rows: Sequence[Row], x: str, log_x: bool) -> Spec:
    """Whole steps, and on a log axis the very values that were measured."""
    values = sorted({row[x] for row in rows})
    if log_x and len(values) <= 12:
        return {"values": values, "format": ",.0f", "labelOverlap": True}
    return {"tickMinStep": 1, "format": "d"} if all(isinstance(v, int) for v in values) else {}


def band_bars(rows: pa.Table, labels: Sequence[str]) -> Spec:
    """Stacked counts by band; `labels`: the columns that name a bar."""
    long = [
        {"label": " · ".join(str(row[name]) for name in labels), "band": band, "place": i, "problems": row[band]}
        for row in rows.to_pylist()
        for i, band in enumerate(BANDS)
    ]
    encoding = {
        "y": _field("label", "nominal", title=None, sort=None, axis={"labelLimit": 260}),
        "x": _field("problems", title="problems"),
        "color": _field(
            "band",
            "nominal",
            title=None,
            scale={"domain": list(BANDS), "range": [look.light for look in BAND_STYLES.values()]},
        ),
        "order": _field("place"),
        "tooltip": [_field("label", "nominal"), _field("band", "nominal"), _field("problems")],
    }
    return _spec(long, 90 + 34 * rows.num_rows, mark="bar", encoding=encoding)


def heat(rows: Sequence[Row], arm: str, other: str) -> Spec:
    """A cross-tab of bands."""
    most = max(row["count"] or 0 for row in rows)
    encoding = {
        "x": _field("other_band", "nominal", sort=list(BANDS), title=other, axis={"labelAngle": 0}),
        "y": _field("band", "nominal", sort=list(BANDS), title=arm),
        "tooltip": [_field("band", "nominal"), _field("other_band", "nominal"), _field("count")],
    }
    ink = {"condition": {"test": f"datum.count > {0.55 * most}", "value": "white"}, "value": "#1c1e21"}
    layer = [
        {
            "mark": {"type": "rect", "cornerRadius": 3},
            "encoding": {"color": _field("count", scale={"scheme": "blues"}, legend=None)},
        },
        {"mark": {"type": "text", "fontSize": 15}, "encoding": {"text": _field("count"), "color": ink}},
    ]
    return _spec(rows, 240, encoding=encoding, layer=layer)


def pairs(rows: Sequence[Row], y: str, phase: str, seed: int | None, arm: str, other: str) -> Spec:
    """One dot a problem, two policies against each other; above the dashed line the second is higher."""
    names, when = (y, f"other_{y}"), f"{phase} training" + (f", seed {seed}" if seed is not None else "")
    high = max(row[name] for row in rows for name in names) or 1.0
    scale = {"domain": [0, high * 1.05]}
    encoding = {
        "x": _field(names[0], title=f"{arm}, {when}", scale=scale),
        "y": _field(names[1], title=f"{other}, {when}", scale=scale),
        "tooltip": [_field("problem_id", "nominal"), *map(_field, names)],
    }
    ends = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": high, "y": high}]},
        "mark": {"type": "line", "strokeDash": [5, 4], "color": BAND_STYLES[Band.ALL_ZERO].light},
        "encoding": {"x": _field("x", scale=scale), "y": _field("y", scale=scale)},
    }
    dots = {"mark": {"type": "circle", "size": 60, "color": ARM_STYLES[0].light, "opacity": 0.7}, "encoding": encoding}
    return _spec(rows, HEIGHT, layer=[ends, dots])


def points(chart: Points, rows: Sequence[Row], style: int) -> Spec:
    """A mark a row with its name, and the intervals of both axes."""
    x, y, look = chart.x, chart.y, ARM_STYLES[style]
    tips = [_field(chart.label, "nominal"), *(_field(f"{of}{end}") for of in (x, y) for end in ("", "_low", "_high"))]
    here = {"x": _field(x, title=chart.x_name), "y": _field(y, title=chart.y_name)}
    layer = [
        {"mark": {"type": "rule", "opacity": 0.4}, "encoding": {"x": _field(f"{x}_low"), "x2": {"field": f"{x}_high"}}},
        {"mark": {"type": "rule", "opacity": 0.4}, "encoding": {"y": _field(f"{y}_low"), "y2": {"field": f"{y}_high"}}},
        {"mark": {"type": "point", "filled": True, "size": 50, "color": look.light}, "encoding": {"tooltip": tips}},
        {
            "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 11},
            "encoding": {"text": _field(chart.label, "nominal")},
        },
    ]
    return _spec(rows, HEIGHT, encoding=here, layer=layer)
