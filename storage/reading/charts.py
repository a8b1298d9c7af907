"""Turn rows into Vega-Lite specs, as the figures declare them. The app and the report draw the same specs; an arm has
one colour and one shape everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
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
    Style,
    is_share,
    styles,
)

Spec = dict[str, Any]
Row = dict[str, Any]
#: Of a drawing in the report, in pixels.
WIDTH, HEIGHT = 400, 260
INK, SOFT, LINE = (PAGE_STYLES[name].light for name in ("ink", "soft", "line"))
#: The font is among those that the renderer brings along, so that a drawing is the same on every machine.
CONFIG = {
    "background": None,
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": SOFT, "titleColor": INK, "gridColor": LINE, "domainColor": SOFT, "tickColor": SOFT}
    | {"titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 12},
    "legend": {"labelColor": SOFT, "titleColor": SOFT, "orient": "top", "labelLimit": 260}
    | {"columnPadding": 20, "titleOrient": "left", "titleFontWeight": "normal"},
    "header": {"labelColor": SOFT, "titleColor": SOFT},
    "title": {"color": INK, "fontSize": 12, "fontWeight": "normal"},
}
#: Strokes of the smallest step, the policy before training, of those between and of the last.
DASHED, DOTTED, SOLID = [6, 4], [2, 2], [1, 0]


def drawn(chart: Chart | None, rows: pa.Table, arms: Sequence[str]) -> list[Spec]:
    """Return the charts of a figure; none for a table or where every value is missing. arms: all of a run's."""
    match chart:
        case Lines(each=None):
            return lines(chart, rows, arms)
        case Lines(each=str(column)):
            return [
                spec | {"title": of}
                for (of,), some in _each(rows, (column,))
                for spec in lines(chart, pa.Table.from_pylist(some, schema=rows.schema), arms)
            ]
        case Bars(labels=labels):
            return bars(rows.to_pylist(), labels)
        case Heat():
            return [spec for of, some in _each(rows, ("arm", "other")) for spec in heat(some, *of)]
        case Pairs():
            key = ("phase", "seed", "arm", "other")
            return [pairs(chart, some, *of) for of, some in _each(rows, key)]
        case Points():
            return [spec for (arm,), some in _each(rows, ("arm",)) for spec in points(chart, some, arm)]
        case _:
            return []


def as_svg(spec: Spec, *, page: str | None = None) -> str:
    """Render a chart, light. page: its background, none by default, so that it stands on whatever the page has."""
    import vl_convert

    sized = {"width": WIDTH, "background": page, "config": CONFIG} | {k: v for k, v in spec.items() if k != "width"}
    text = vl_convert.vegalite_to_svg(sized, allowed_base_urls=[])
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(spec["description"], quote=True)}" ', 1)


def as_pdf(spec: Spec) -> bytes:
    """Render a chart as one page of its size, letters as letters."""
    import vl_convert

    return vl_convert.svg_to_pdf(as_svg(spec, page="white"))


def dark_rules(palette: dict[str, Style]) -> str:
    """Return the style sheet's rules by which drawings within a page follow its colours: a rule outweighs the colour
    that an element of SVG states itself. palette: variable of the style sheet → style."""
    return "".join(
        f'svg [{part}="{style.light}"]{{{part}:var(--{name})}}'
        for name, style in palette.items()
        for part in ("fill", "stroke")
    )


def _each(rows: pa.Table, key: tuple[str, ...]) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """Rows by the values of a key, in their order."""
    found = groupby(rows.to_pylist(), key=lambda row: tuple(row[name] for name in key))
    return [(of, list(some)) for of, some in found]


def _spec(rows: Sequence[Row], description: str, **rest: Any) -> Spec:
    shown = {"data": {"values": list(rows)}, "description": description, "width": "container", "height": HEIGHT}
    return shown | {"config": CONFIG} | rest


def _field(name: str, kind: str = "quantitative", **rest: Any) -> Spec:
    return {"field": name, "type": kind, **rest}


def _scale(of: str, shown: dict[str, Any], channel: str) -> Spec:
    return _field(of, "nominal", title=None, scale={"domain": list(shown), "range": list(shown.values())}) | (
        {"legend": {"symbolOpacity": 1}} if channel == "color" else {}
    )


def lines(chart: Lines, table: pa.Table, arms: Sequence[str], dash: str | None = None) -> list[Spec]:
    """One line per arm and per value of `dash`, of seed and of step, where there are several."""
    x, y = chart.x, chart.y
    rows = [row for row in table.to_pylist() if row[x] is not None and row[y] is not None]
    if not rows:
        return []
    names = [c for c in (dash, "seed", "step") if c and c in table.column_names and c != x]
    several = [c for c in dict.fromkeys(names) if len({row[c] for row in rows}) > 1]
    present = {row["arm"] for row in rows}
    looks = {arm: ARM_STYLES[place] for arm, place in styles(arms).items() if arm in present}
    shares: Spec = {"axis": {"format": "%"}} if is_share(y) else {}
    log_scale: Spec = {"scale": {"type": "log", "base": 2}} if chart.log_x else {}
    encoding: Spec = {
        "x": _field(x, title=chart.x_name, axis=_ticks(rows, x, chart.log_x), **log_scale),
        "y": _field(y, title=chart.y_name, **shares),
        "color": _scale("arm", {arm: look.light for arm, look in looks.items()}, "color"),
    }
    if several:
        encoding["detail"] = [_field(name, "nominal") for name in several]
    strokes = _field(several[0], "nominal", title=several[0], **_strokes(several[0], rows)) if several else None
    shape = _scale("arm", {arm: look.shape for arm, look in looks.items()}, "shape")
    tips = [*(_field(name, "nominal") for name in ("arm", *several)), _field(x), _field(y)]
    layer: list[Spec] = []
    if f"{y}_low" in table.column_names:
        tips += [_field(f"{y}_{end}") for end in ("low", "high")]
        ends = {"y": _field(f"{y}_low", title=chart.y_name, **shares), "y2": {"field": f"{y}_high"}}
        mark = {"type": "area", "opacity": 0.14} if len({row[x] for row in rows}) > 1 else {"type": "rule"}
        layer.append({"mark": mark, "encoding": ends})
    layer.append({"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"strokeDash": strokes} if strokes else {}})
    if len({row[x] for row in rows}) < 60:
        mark = {"type": "point", "filled": True, "size": 50, "opacity": 1}
        layer.append({"mark": mark, "encoding": {"shape": shape, "tooltip": tips}})
    return [_spec(rows, f"{chart.y_name} by {chart.x_name}", encoding=encoding, layer=layer)]


def _strokes(dash: str, rows: Sequence[Row]) -> Spec:
    legend: Spec = {"legend": {"symbolSize": 500}}
    if dash != "step":
        return legend
    steps = sorted({row["step"] for row in rows})
    return legend | {"scale": {"domain": steps, "range": [DASHED, *[DOTTED] * (len(steps) - 2), SOLID]}}


def _ticks(rows: Sequence[Row], x: str, log_x: bool) -> Spec:
    """Whole steps; on a log axis the powers of two that were measured, or all of few values."""
    values = sorted({row[x] for row in rows})
    doubled = [v for v in values if v > 0 and math.log2(v).is_integer()]
    if log_x and (len(doubled) > 2 or len(values) <= 12):
        return {"values": doubled if len(doubled) > 2 else values, "format": ",.0f", "labelOverlap": True}
    return {"tickMinStep": 1, "format": "d"} if all(isinstance(v, int) for v in values) else {}


def bars(rows: Sequence[Row], labels: Sequence[str]) -> list[Spec]:
    """One bar a row, split into the three bands by their shares, each with its count. labels: columns that name it."""
    long = [
        {"label": " · ".join(str(row[name]) for name in labels), "band": band, "problems": row[band] or 0}
        | {
            "start": sum(row[b] or 0 for b in BANDS[:i]) / total,
            "end": sum(row[b] or 0 for b in BANDS[: i + 1]) / total,
        }
        for row in rows
        if (total := sum(row[band] or 0 for band in BANDS))
        for i, band in enumerate(BANDS)
    ]
    if not long:
        return []
    colours = {str(band): look.light for band, look in BAND_STYLES.items()}
    encoding = {
        "y": _field("label", "nominal", title=None, sort=None, axis={"labelLimit": 260}),
        "tooltip": [_field("label", "nominal"), _field("band", "nominal"), _field("problems")],
    }
    places = {
        "x": _field("start", title="share of problems", axis={"format": "%", "tickCount": 5}),
        "x2": {"field": "end"},
    }
    ink = {"condition": {"test": f"datum.band == '{Band.VARIANCE}'", "value": "#fff"}, "value": "#15181c"}
    layer = [
        {"mark": "bar", "encoding": places | {"color": _scale("band", colours, "color")}},
        {
            "transform": [
                {"filter": "datum.end - datum.start > 0.06"},
                {"calculate": "(datum.start + datum.end) / 2", "as": "middle"},
            ],
            "mark": "text",
            "encoding": {"x": _field("middle"), "text": _field("problems"), "color": ink},
        },
    ]
    return [_spec(long, "problems by band", height=26 * len(long) / 3 + 20, encoding=encoding, layer=layer)]


def heat(rows: Sequence[Row], arm: str, other: str) -> list[Spec]:
    """A cross-tab of two arms' bands with its totals, shaded by count."""
    count = {(row["band"], row["other_band"]): row["count"] or 0 for row in rows if row["band"] is not None}
    if not sum(count.values()):
        return []
    of = (*BANDS, "total")
    cells = [
        {"band": a, "other_band": b, "inner": "total" not in (a, b)}
        | {"count": sum(n for (x, y), n in count.items() if a in (x, "total") and b in (y, "total"))}
        for a in of
        for b in of
    ]
    encoding = {
        "x": _field("other_band", "nominal", sort=list(of), title=other, axis={"labelAngle": 0}),
        "y": _field("band", "nominal", sort=list(of), title=arm),
        "tooltip": [_field("band", "nominal"), _field("other_band", "nominal"), _field("count")],
    }
    dark = f"datum.count > {0.55 * max(count.values())}"
    ink = {
        "condition": [
            {"test": f"datum.inner && {dark}", "value": "white"},
            {"test": "datum.inner", "value": "#15181c"},
        ],
        "value": INK,
    }
    shade = _field("count", scale={"range": ["#eaf3f8", ARM_STYLES[0].light]}, legend=None)
    layer = [
        {
            "transform": [{"filter": "datum.inner"}],
            "mark": {"type": "rect", "cornerRadius": 3},
            "encoding": {"color": shade},
        },
        {"mark": {"type": "text", "fontSize": 15}, "encoding": {"text": _field("count", format=","), "color": ink}},
    ]
    said = f"{arm} against {other}, {sum(count.values())} problems"
    return [_spec(cells, said, height=240, encoding=encoding, layer=layer)]


def pairs(chart: Pairs, rows: Sequence[Row], phase: str, seed: int | None, arm: str, other: str) -> Spec:
    """One dot a problem, two policies against each other; above the dashed line the second is higher. A cross marks the
    means."""
    names, when = (chart.y, f"other_{chart.y}"), f"{phase} training" + (f", seed {seed}" if seed is not None else "")
    high = max(row[name] for row in rows for name in names) or 1.0
    scale = {"domain": [0, high * 1.05]}
    here = {
        "x": _field(names[0], title=f"{chart.y_name} under {arm}", scale=scale),
        "y": _field(names[1], title=f"{chart.y_name} under {other}", scale=scale),
    }
    ends = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": high, "y": high}]},
        "mark": {"type": "line", "strokeDash": [5, 4], "color": BAND_STYLES[Band.ALL_ZERO].light},
        "encoding": {"x": _field("x", scale=scale), "y": _field("y", scale=scale)},
    }
    dots = {
        "mark": {"type": "circle", "size": 60, "color": ARM_STYLES[0].light, "opacity": 0.7},
        "encoding": here | {"tooltip": [_field("problem_id", "nominal"), *map(_field, names)]},
    }
    mean = {
        "data": {"values": [{"x": rows[0]["mean"], "y": rows[0]["other_mean"]}]},
        "mark": {"type": "point", "shape": "cross", "filled": True, "size": 160, "color": ARM_STYLES[1].light},
        "encoding": {"x": _field("x", scale=scale), "y": _field("y", scale=scale)},
    }
    return _spec(
        rows, f"{chart.y_name} of {len(rows)} problems, {arm} against {other}", title=when, layer=[ends, dots, mean]
    )


def points(chart: Points, rows: Sequence[Row], arm: str) -> list[Spec]:
    """A mark a row, named in the legend, with the intervals of both axes."""
    x, y = chart.x, chart.y
    known = [row for row in rows if row[x] is not None and row[y] is not None]
    if not known:
        return []
    looks = {row[chart.label]: ARM_STYLES[place % len(ARM_STYLES)] for place, row in enumerate(known)}
    here = {
        "x": _field(x, title=chart.x_name),
        "y": _field(y, title=chart.y_name),
        "color": _scale(chart.label, {name: look.light for name, look in looks.items()}, "color"),
    }
    shape = _scale(chart.label, {name: look.shape for name, look in looks.items()}, "shape")
    tips = [_field(chart.label, "nominal"), *(_field(f"{of}{end}") for of in (x, y) for end in ("", "_low", "_high"))]
    layer = [
        {"mark": {"type": "rule", "opacity": 0.4}, "encoding": {"x": _field(f"{x}_low"), "x2": {"field": f"{x}_high"}}},
        {"mark": {"type": "rule", "opacity": 0.4}, "encoding": {"y": _field(f"{y}_low"), "y2": {"field": f"{y}_high"}}},
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"shape": shape, "tooltip": tips},
        },
    ]
    return [_spec(known, f"{chart.y_name} against {chart.x_name}, {arm}", encoding=here, layer=layer)]
