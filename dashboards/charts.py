"""Rows to Vega-Lite, one place for colours and shapes: an arm looks the same on every page, never by colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Spec = dict[str, Any]
#: Okabe and Ito's palette, the colours of arms in their order.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
BANDS = ("all_zero", "variance", "all_one")
BAND_COLOURS = ("#8A929B", "#0072B2", "#E69F00")
HEIGHT = 300


def _spec(rows: Sequence[dict[str, Any]], height: float, **rest: Any) -> Spec:
    return {"data": {"values": list(rows)}, "width": "container", "height": height, **rest}


def _field(name: str, kind: str = "quantitative", **rest: Any) -> Spec:
    return {"field": name, "type": kind, **rest}


def lines(
    rows: pa.Table,
    x: str,
    y: str,
    arms: Sequence[str],
    *,
    share: bool = False,
    log_x: bool = False,
    dash: str | None = None,
    titles: tuple[str, str] | None = None,
) -> Spec:
    """One line per arm (and per value of `dash`); `<y>_low` and `<y>_high`, where they are columns, shade it.

    arms: all of a run's: one without rows here keeps its colour. `dash` of a single value is not drawn.
    """
    present = set(rows["arm"].to_pylist())
    looks = [look for look in zip(arms, COLOURS, SHAPES, strict=False) if look[0] in present]
    names, colours, shapes = ([look[i] for look in looks] for i in range(3))
    if dash and len(set(rows[dash].to_pylist())) < 2:
        dash = None
    x_title, y_title = titles or (x.replace("_", " "), y.replace("_", " "))
    number_format: Spec = {"axis": {"format": "%"}} if share else {}
    log_scale: Spec = {"scale": {"type": "log", "base": 2}} if log_x else {}
    encoding: Spec = {
        "x": _field(x, title=x_title, axis=_ticks(rows, x, log_x), **log_scale),
        "y": _field(y, title=y_title, **number_format),
        "color": _field(
            "arm", "nominal", title=None, legend={"symbolOpacity": 1}, scale={"domain": names, "range": colours}
        ),
    }
    dashed: Spec = {"strokeDash": _field(dash, "nominal", title=dash)} if dash else {}
    if dash:
        encoding["detail"] = _field(dash, "nominal")
    shape = _field("arm", "nominal", title=None, scale={"domain": names, "range": shapes})
    tips = [_field(name, "nominal") for name in ("arm", dash) if name] + [_field(x), _field(y)]
    layer: list[Spec] = []
    if f"{y}_low" in rows.column_names:
        tips += [_field(f"{y}_{end}") for end in ("low", "high")]
        area = {"y": _field(f"{y}_low", title=y_title, **number_format), "y2": {"field": f"{y}_high"}}
        layer.append({"mark": {"type": "area", "opacity": 0.14}, "encoding": area})
    layer.append({"mark": {"type": "line", "strokeWidth": 2}, "encoding": dashed})
    layer.append({"mark": {"type": "point", "filled": True, "size": 50}, "encoding": {"shape": shape, "tooltip": tips}})
    return _spec(rows.to_pylist(), HEIGHT, encoding=encoding, layer=layer)


def _ticks(rows: pa.Table, x: str, log_x: bool) -> Spec:
    """Whole steps, and on a log axis the very values that were measured."""
    values = sorted(set(rows[x].to_pylist()))
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
        "color": _field("band", "nominal", title=None, scale={"domain": list(BANDS), "range": list(BAND_COLOURS)}),
        "order": _field("place"),
        "tooltip": [_field("label", "nominal"), _field("band", "nominal"), _field("problems")],
    }
    return _spec(long, 90 + 34 * rows.num_rows, mark="bar", encoding=encoding)


def heat(rows: pa.Table, arm: str, other: str) -> Spec:
    """A cross-tab of bands."""
    most = max([n or 0 for n in rows["count"].to_pylist()], default=0)
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
    return _spec(rows.to_pylist(), 240, encoding=encoding, layer=layer)


def pairs(rows: pa.Table, names: tuple[str, str], measures: tuple[str, str]) -> Spec:
    """One dot a problem, two policies against each other; above the dashed line the second is higher."""
    values = rows.to_pylist()
    high = max([row[m] for row in values for m in measures], default=1.0) or 1.0
    scale = {"domain": [0, high * 1.05]}
    encoding = {
        "x": _field(measures[0], title=names[0], scale=scale),
        "y": _field(measures[1], title=names[1], scale=scale),
        "tooltip": [_field("problem_id", "nominal"), *(_field(m) for m in measures)],
    }
    ends = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": high, "y": high}]},
        "mark": {"type": "line", "strokeDash": [5, 4], "color": "#8A929B"},
        "encoding": {"x": _field("x", scale=scale), "y": _field("y", scale=scale)},
    }
    dots = {"mark": {"type": "circle", "size": 60, "color": COLOURS[0], "opacity": 0.7}, "encoding": encoding}
    return _spec(values, HEIGHT, layer=[ends, dots])
