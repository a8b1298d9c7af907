"""Turn the rows of figures into Vega-Lite specs. App and report use the same specs. An arm has one colour and shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

import pyarrow as pa

from storage.estimates import Band
from storage.reading.figures import (
    ARM_STYLES,
    BAND_STYLES,
    BANDS,
    PAGE_STYLES,
    Chart,
    Style,
    is_share,
    signed_end,
    styles,
)

Spec = dict[str, Any]
Row = dict[str, Any]
#: Size of a chart in the report, in pixels.
WIDTH, HEIGHT = 400, 260
INK, SOFT, LINE = (PAGE_STYLES[name].light for name in ("ink", "soft", "line"))
#: The font is bundled with the renderer, so that charts are equal on every machine.
CONFIG = {
    "background": None,
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": SOFT, "titleColor": INK, "gridColor": LINE, "domainColor": SOFT, "tickColor": SOFT}
    | {
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "labelFlush": False,
        "labelSeparation": 6,
    },
    "legend": {"labelColor": SOFT, "titleColor": SOFT, "orient": "top", "labelLimit": 260}
    | {"columnPadding": 20, "titleOrient": "left", "titleFontWeight": "normal"},
    "header": {"labelColor": SOFT, "titleColor": SOFT},
    "title": {"color": INK, "fontSize": 12, "fontWeight": "normal"},
}
#: Dashes of lines: the first step (before training), the steps between, the last step.
DASHED, DOTTED, SOLID = [6, 4], [2, 2], [1, 0]


def specs_of(chart: Chart | None, rows: pa.Table, arms: Sequence[str]) -> list[Spec]:
    """Return the charts of a figure; none for a table, or if there are no values. arms: all arms of the run."""
    if chart is None:
        return []
    split, make = KINDS[chart.kind]
    by = (chart.each,) if chart.each else split
    parts = groupby(rows.to_pylist(), key=lambda row: tuple(row[name] for name in by))
    return [spec for key, some in parts for spec in make(chart, list(some), arms, *key)]


def as_svg(spec: Spec, *, page: str | None = None) -> str:
    """Render a chart in light colours. page: colour of the background; transparent by default."""
    import vl_convert

    sized = {"width": WIDTH, "background": page, "config": CONFIG} | {k: v for k, v in spec.items() if k != "width"}
    text = vl_convert.vegalite_to_svg(sized, allowed_base_urls=[])
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(spec["description"], quote=True)}" ', 1)


def as_pdf(spec: Spec) -> bytes:
    """Render a chart as one page of its size, with text as text."""
    import vl_convert

    return vl_convert.svg_to_pdf(as_svg(spec, page="white"))


def as_png(svg: str) -> bytes:
    """Render an SVG on white, at twice its size, for pages that show no SVG or have other fonts."""
    import vl_convert

    head, _, rest = svg.partition(">")
    return vl_convert.svg_to_png(f'{head}><rect width="100%" height="100%" fill="white"/>{rest}', scale=2)


def dark_rules(palette: dict[str, Style]) -> str:
    """Return style-sheet rules that give charts the colours of a page. palette: variable of the style sheet → style."""
    return "".join(
        f'svg [{part}="{style.light}"]{{{part}:var(--{name})}}'
        for name, style in palette.items()
        for part in ("fill", "stroke")
    )


# ---- parts of specs that several kinds of chart share


def _spec(rows: Sequence[Row], description: str, **rest: Any) -> Spec:
    shared = {"data": {"values": list(rows)}, "description": description, "width": "container", "height": HEIGHT}
    return shared | {"config": CONFIG} | rest


def _field(name: str, kind: str = "quantitative", **rest: Any) -> Spec:
    return {"field": name, "type": kind, **rest}


def _scale(of: str, values: Mapping[str, Any], **rest: Any) -> Spec:
    scale = {"domain": list(values), "range": list(values.values())}
    return _field(of, "nominal", title=None, scale=scale, **rest)


def _named_marks(of: str, looks: Mapping[str, Style]) -> tuple[Spec, Spec]:
    """Return the encodings (colour, shape) of marks that are named by a column."""
    colour = _scale(of, {name: look.light for name, look in looks.items()}, legend={"symbolOpacity": 1})
    return colour, _scale(of, {name: look.shape for name, look in looks.items()})


def _layer(mark: str, encoding: Spec, only: str = "", **look: Any) -> Spec:
    """Return one mark of a chart. only: filter of the rows that get the mark."""
    chosen = {"transform": [{"filter": only}]} if only else {}
    return chosen | {"mark": {"type": mark, **look}, "encoding": encoding}


def _point(encoding: Spec, size: int, only: str = "", **look: Any) -> Spec:
    return _layer("point", encoding, only, size=size, filled=True, opacity=1, **look)


def lines(chart: Chart, rows: Sequence[Row], arms: Sequence[str], title: str = "", dash: str = "seed") -> list[Spec]:
    """Return a line chart with one line per arm, and per value of `dash`, seed and step where there are several."""
    x, y = chart.x, chart.y
    rows = [row for row in rows if row[x] is not None and row[y] is not None]
    if not rows:
        return []
    names = [c for c in (dash, "seed", "step") if c in rows[0] and c != x]
    several = [c for c in dict.fromkeys(names) if len({row[c] for row in rows}) > 1]
    present, places = {row["arm"] for row in rows}, len({row[x] for row in rows})
    looks = {arm: ARM_STYLES[place] for arm, place in styles(arms).items() if arm in present}
    colour, shape = _named_marks("arm", looks)
    shares: Spec = {"axis": {"format": "%"}} if is_share(y) else {}
    log_scale: Spec = {"scale": {"type": "log", "base": 2}} if chart.log_x else {}
    encoding: Spec = {
        "x": _field(x, title=chart.x_name, axis=_ticks(rows, x, chart.log_x), **log_scale),
        "y": _field(y, title=chart.y_name, **shares),
        "color": colour,
    }
    if several:
        encoding["detail"] = [_field(name, "nominal") for name in several]
    tips = [*(_field(name, "nominal") for name in ("arm", *several)), _field(x), _field(y)]
    layer: list[Spec] = []
    if f"{y}_low" in rows[0]:
        tips += [_field(f"{y}_{end}") for end in ("low", "high")]
        ends = {"y": _field(f"{y}_low", title=chart.y_name, **shares), "y2": {"field": f"{y}_high"}}
        layer.append(_layer("area", ends, opacity=0.14) if places > 1 else _layer("rule", ends))
    strokes = {"strokeDash": _strokes(several[0], rows)} if several else {}
    layer.append(_layer("line", strokes, strokeWidth=2))
    if places < 60:
        layer.append(_point({"shape": shape, "tooltip": tips}, 50))
    titled = {"title": title} if title else {}
    return [_spec(rows, f"{chart.y_name} by {chart.x_name}", encoding=encoding, layer=layer, **titled)]


def _strokes(dash: str, rows: Sequence[Row]) -> Spec:
    scale: Spec = {}
    if dash == "step":
        steps = sorted({row["step"] for row in rows})
        scale = {"scale": {"domain": steps, "range": [DASHED, *[DOTTED] * (len(steps) - 2), SOLID]}}
    return _field(dash, "nominal", title=dash, legend={"symbolSize": 500}, **scale)


def _ticks(rows: Sequence[Row], x: str, log_x: bool) -> Spec:
    """Return axis ticks at whole steps (on a log axis at powers of two), or at every value if there are few."""
    values = sorted({row[x] for row in rows})
    doubled = [v for v in values if v > 0 and math.log2(v).is_integer()]
    if log_x and (len(doubled) > 2 or len(values) <= 12):
        return {"values": doubled if len(doubled) > 2 else values, "format": ",.0f", "labelOverlap": True}
    if not all(isinstance(v, int) for v in values):
        return {}
    return {"format": "d"} | ({"values": values} if len(values) <= 12 else {"tickMinStep": 1})


def bars(chart: Chart, rows: Sequence[Row], _: Sequence[str]) -> list[Spec]:
    """Return a bar chart with one bar per row, split into the three bands by share, with counts."""
    long = [
        {"label": " · ".join(str(row[name]) for name in chart.labels), "band": band, "problems": row[band] or 0}
        | {"place": place, "all": total}
        for row in rows
        if (total := sum(row[band] or 0 for band in BANDS))
        for place, band in enumerate(BANDS)
    ]
    if not long:
        return []
    x = _field("problems", title="share of problems", stack="normalize", axis={"format": "%", "tickCount": 5})
    encoding = {
        "y": _field("label", "nominal", title=None, sort=None, axis={"labelLimit": 260}),
        "order": _field("place"),
        "tooltip": [_field("label", "nominal"), _field("band", "nominal"), _field("problems")],
    }
    colours = {str(band): look.light for band, look in BAND_STYLES.items()}
    colour = _scale("band", colours, legend={"symbolOpacity": 1})
    ink = {"condition": {"test": f"datum.band == '{Band.VARIANCE}'", "value": "#fff"}, "value": "#15181c"}
    wide = {"condition": {"test": "datum.problems > 0.06 * datum.all", **_field("problems")}, "value": ""}
    number = {"x": x | {"bandPosition": 0.5}, "text": wide, "color": ink, "detail": _field("band", "nominal")}
    layer = [_layer("bar", {"x": x, "color": colour}), _layer("text", number)]
    return [_spec(long, "problems by band", height=26 * len(long) / 3 + 20, encoding=encoding, layer=layer)]


def heat(_: Chart, rows: Sequence[Row], __: Sequence[str], arm: str, other: str) -> list[Spec]:
    """Return a table of two arms' bands with totals, shaded by count."""
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
    dark = {"test": f"datum.inner && datum.count > {0.55 * max(count.values())}", "value": "white"}
    ink = {"condition": [dark, {"test": "datum.inner", "value": "#15181c"}], "value": INK}
    shade = _field("count", scale={"range": ["#eaf3f8", ARM_STYLES[0].light]}, legend=None)
    number = {"text": _field("count", format=","), "color": ink}
    layer = [_layer("rect", {"color": shade}, "datum.inner", cornerRadius=3), _layer("text", number, fontSize=15)]
    description = f"{arm} against {other}, {sum(count.values())} problems"
    return [_spec(cells, description, height=240, encoding=encoding, layer=layer)]


def levels(chart: Chart, rows: Sequence[Row], arms: Sequence[str]) -> list[Spec]:
    """Return the chart that answers a study's question. The upper panel shows the accuracy (or width) of each arm,
    objective or method, before and after. The lower panel shows the differences, and next to each the range of
    differences that the study is too small to detect. chart: x is the column of the value after, y that of the
    difference. rows: result of a query report_answer_*."""
    x, y, scale = chart.x, chart.y, 100 if is_share(chart.x) else 1
    before, least = x.replace("after_", "before_"), f"detectable_{y}"
    scaled = [f"{name}{end}" for name in (x, y) for end in ("", "_low", "_high")] + [before, least]
    rows = [{**row, **{name: scale * row[name] for name in scaled if row.get(name) is not None}} for row in rows]
    above = [row for row in rows if row["row"] != "difference" and row[x] is not None]
    below = [row for row in rows if row["row"] == "difference" and row[y] is not None]
    if not above:
        return []
    shared = {
        row["label"] for row in above if row["arm"] != next(r["arm"] for r in above if r["label"] == row["label"])
    }
    for row in above:
        row["number"] = "" if row["row"] == "seed" or row["label"] in shared else _number_beside(row, chart, scale)
    for row in below:
        row |= {"number": _number_beside(row, chart, scale), "least": None if row.get(least) is None else -row[least]}
    main, looks = "datum.row == 'level'", {arm: ARM_STYLES[place].light for arm, place in styles(arms).items()}
    label = {"y": _field("label", "nominal", title=None, sort=None, axis=_LABELS)}
    number = label | {"text": _field("number", "nominal")}
    legend = {"orient": "right", "symbolOpacity": 1} if shared else None  # only a line of several arms needs a legend
    of_arm = label | {"color": _scale("arm", looks, legend=legend)}

    def at(name: str, to: str = "", **rest: Any) -> Spec:
        return {"x": _field(name, **rest)} | ({"x2": {"field": to}} if to else {})

    axis: Spec = {"title": chart.x_name, "scale": {"zero": False, "nice": True}, "axis": _TICKS}
    start, after = {"scale": axis["scale"]}, of_arm | at(x, **axis)
    panels = [
        _panel(
            above,
            _layer("rule", of_arm | at(f"{x}_low", f"{x}_high", **axis), main, size=9, opacity=0.3),
            _layer("rule", of_arm | at(before, x, **start), main, size=2),
            _layer("point", of_arm | at(before, **start), main, size=90, fill="white", opacity=1),
            _layer("point", after, "datum.row == 'seed'", filled=True, size=22),
            _point(after, 110, main),
            _layer("text", number, main, **_BESIDE),
        )
    ]
    if below:
        title = {"title": chart.y_name, "axis": _TICKS}
        zero = _layer("rule", at("zero", axis=_TICKS), strokeDash=[3, 3], color=SOFT)
        zero |= {"data": {"values": [{"zero": 0}]}}
        grey = _layer("bar", label | at("least", least, **title), height=26, color=LINE, opacity=0.6)
        ends = _layer("rule", label | at(f"{y}_low", f"{y}_high", **title), size=2, color=INK)
        middle = _point(label | at(y, **title), 90, color=INK)
        panels.append(_panel(below, grey, zero, ends, middle, _layer("text", number, **_BESIDE)))
    whole = {"config": CONFIG, "resolve": {"scale": {"color": "shared"}}}
    return [{"description": f"{chart.x_name}, and the differences", "vconcat": panels, **whole}]


def _number_beside(row: Row, chart: Chart, scale: float) -> str:
    """Return the number next to a row: its difference with the interval, its gain, or else its value after."""
    after, more = row.get(chart.x), row[chart.y]
    if scale > 1 and after == 0 and not more and row.get("rollouts"):
        return f"0 of {row['rollouts']:,} correct"
    if more is not None:
        value = f"{more:+.{chart.digits}f}".replace("-", "−")
        if row["row"] != "difference":
            return f"{value} points"
        low, high = row.get(f"{chart.y}_low"), row.get(f"{chart.y}_high")
        digits = 1 if scale > 1 else chart.digits
        ends = "" if low is None or high is None else f" ({signed_end(low, digits)} to {signed_end(high, digits)})"
        return f"{value}{ends}"
    value = f"{after:.1f} %" if scale > 1 else f"{after:.{chart.digits}f}"
    if row.get("tokens") is None:
        return value
    drawn = f"{row['rollouts']:.1f}".removesuffix(".0")
    return f"{value}, {'' if drawn == '1' else f'{drawn} rollouts, '}{row['tokens']:,.0f} tokens"


#: Width of an answer's panels, without the labels on the left and the numbers on the right.
ANSWER_WIDTH = 560
_LABELS: Spec = {"labelLimit": 220, "labelFontSize": 12, "minExtent": 130, "labelPadding": 10}
_LABELS |= {"domain": False, "ticks": False}
_TICKS: Spec = {"tickCount": 8}
#: Look of the numbers to the right of the panels.
_BESIDE: Spec = {"align": "left", "x": ANSWER_WIDTH + 14, "color": INK}


def _panel(rows: Sequence[Row], *layers: Spec) -> Spec:
    height = 34 * len({row["label"] for row in rows})
    return {"data": {"values": list(rows)}, "width": ANSWER_WIDTH, "height": height, "layer": list(layers)}


def pairs(
    chart: Chart, rows: Sequence[Row], _: Sequence[str], phase: str, seed: int | None, arm: str, other: str
) -> list[Spec]:
    """Return a scatter plot of one policy against another, with one dot per problem. Above the dashed line the second
    policy's value is higher. A cross marks the two means."""
    names, when = (chart.y, f"other_{chart.y}"), f"{phase} training" + (f", seed {seed}" if seed is not None else "")
    high = max(row[name] for row in rows for name in names) or 1.0
    scale = {"domain": [0, high * 1.05]}
    here = {
        axis: _field(name, title=f"{chart.y_name} under {of}", scale=scale)
        for axis, name, of in zip("xy", names, (arm, other), strict=True)
    }

    def apart(mark: str, *values: Row, **look: Any) -> Spec:
        at = {axis: _field(axis, scale=scale) for axis in "xy"}
        return _layer(mark, at, **look) | {"data": {"values": values}}

    tips = {"tooltip": [_field("problem_id", "nominal"), *map(_field, names)]}
    dots = _layer("circle", here | tips, size=60, color=ARM_STYLES[0].light, opacity=0.7)
    ends, mean = [{"x": v, "y": v} for v in (0, high)], {"x": rows[0]["mean"], "y": rows[0]["other_mean"]}
    description = f"{chart.y_name} of {len(rows)} problems, {arm} against {other}"
    diagonal = apart("line", *ends, strokeDash=[5, 4], color=BAND_STYLES[Band.ALL_ZERO].light)
    cross = apart("point", mean, shape="cross", filled=True, size=160, color=ARM_STYLES[1].light)
    return [_spec(rows, description, title=when, layer=[diagonal, dots, cross])]


def points(chart: Chart, rows: Sequence[Row], _: Sequence[str], arm: str) -> list[Spec]:
    """Return a scatter plot with one mark per row, which the legend names, and with intervals on both axes."""
    x, y, label = chart.x, chart.y, chart.label
    known = [row for row in rows if row[x] is not None and row[y] is not None]
    if not known:
        return []
    looks = {row[label]: ARM_STYLES[place % len(ARM_STYLES)] for place, row in enumerate(known)}
    colour, shape = _named_marks(label, looks)
    here = {"x": _field(x, title=chart.x_name), "y": _field(y, title=chart.y_name), "color": colour}
    tips = [_field(label, "nominal"), *(_field(f"{of}{end}") for of in (x, y) for end in ("", "_low", "_high"))]
    rules = [
        _layer("rule", {axis: _field(f"{of}_low"), f"{axis}2": {"field": f"{of}_high"}}, opacity=0.4)
        for axis, of in (("x", x), ("y", y))
    ]
    layer = [*rules, _point({"shape": shape, "tooltip": tips}, 60)]
    return [_spec(known, f"{chart.y_name} against {chart.x_name}, {arm}", encoding=here, layer=layer)]


#: Kind of chart → (columns that split it into one chart per value, function that makes it).
KINDS: dict[str, tuple[tuple[str, ...], Callable[..., list[Spec]]]] = {
    "lines": ((), lines),
    "bars": ((), bars),
    "heat": (("arm", "other"), heat),
    "levels": ((), levels),
    "pairs": (("phase", "seed", "arm", "other"), pairs),
    "points": (("arm",), points),
}
