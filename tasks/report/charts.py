"""The report's charts: rows in, one SVG out. Nothing is computed here but places on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tasks.report.style import BAND_CLASSES
from tasks.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    at,
    axes,
    log_ticks,
    mark,
    number,
    path,
    percent,
    svg,
    text,
    ticks,
)


@dataclass(frozen=True, slots=True)
class Point:
    """low, high: the interval of y; null where there is none."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """style: which colour and shape; series of one arm share it. dashed: a second quantity of that arm."""

    name: str
    style: int
    points: tuple[Point, ...]
    dashed: bool = False


def line_chart(
    series: Sequence[Series], x_name: str, y_name: str, *, share: bool = False, log_x: bool = False
) -> str | None:
    """Lines with marks and shaded intervals. Null if there is no point to draw."""
    points = [p for s in series for p in s.points]
    if not points:
        return None
    xs = sorted({p.x for p in points})
    heights = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    low, high = min(0.0, *heights), max(heights)
    high = high if high > low else low + 1.0
    low, high = (low, min(1.0, high * 1.05)) if share and low >= 0 else (low, high + 0.05 * (high - low))
    x = Scale(xs[0], xs[-1], LEFT + 8, WIDTH - RIGHT - 8, log=log_x)
    y = Scale(low, high, HEIGHT - BOTTOM, TOP)
    if log_x:
        doubled = [v for v in xs if v > 0 and math.log2(v).is_integer()]
        at_x = _apart(x, doubled if len(doubled) > 2 else log_ticks(xs[0], xs[-1]))
    else:
        at_x = xs if len(xs) <= 6 else ticks(xs[0], xs[-1], 6)
    drawn = axes(x, y, at_x, x_name, y_name, share=share)
    for s in series:
        shaded = [p for p in s.points if p.low is not None and p.high is not None]
        if len(shaded) > 1:
            edge = [(x(p.x), y(p.high)) for p in shaded if p.high is not None]
            edge += [(x(p.x), y(p.low)) for p in reversed(shaded) if p.low is not None]
            drawn.append(f'<polygon class="fill s{s.style}" points="{path(edge)}"/>')
        elif shaded:
            p = shaded[0]
            drawn.append(
                f'<line class="whisker s{s.style}" x1="{at(x(p.x))}" x2="{at(x(p.x))}"'
                f' y1="{at(y(p.low or 0))}" y2="{at(y(p.high or 0))}"/>'
            )
    for s in series:
        dash = " dashed" if s.dashed else ""
        drawn.append(f'<polyline class="line s{s.style}{dash}" points="{path([(x(p.x), y(p.y)) for p in s.points])}"/>')
        if len(s.points) < 60:
            drawn += [mark(s.style, x(p.x), y(p.y), _hint(s.name, p, share)) for p in s.points]
    return svg([*drawn, *_legend(series)], f"{y_name} by {x_name}, {len(series)} lines")


def _apart(x: Scale, values: Sequence[float], pixels: float = 30.0) -> list[float]:
    """Those whose labels do not run into the one before."""
    kept: list[float] = []
    for value in values:
        if not kept or x(value) - x(kept[-1]) >= pixels:
            kept.append(value)
    return kept


def _hint(name: str, p: Point, share: bool) -> str:
    spell = percent if share else number
    interval = "" if p.low is None else f" [{spell(p.low)}, {spell(p.high)}]"
    return f"{name}, {number(p.x)}: {spell(p.y)}{interval}"


def _legend(series: Sequence[Series]) -> list[str]:
    """Along the top, wrapped where a row is full."""
    drawn: list[str] = []
    x, y = LEFT + 8.0, 12.0
    for s in series:
        wide = 22 + 6.4 * len(s.name)
        if x + wide > WIDTH and x > LEFT + 8:
            x, y = LEFT + 8.0, y + 15
        dash = " dashed" if s.dashed else ""
        ends = [(x - 8, y - 4), (x + 8, y - 4)]
        drawn.append(f'<polyline class="line s{s.style}{dash}" points="{path(ends)}"/>')
        drawn.append(mark(s.style, x, y - 4, size=3))
        drawn.append(text(x + 12, y, s.name, anchor="start", css="tick"))
        x += wide
    return drawn


def band_bars(rows: Sequence[tuple[str, dict[str, int]]]) -> str | None:
    """One bar a row, split into the three bands, each labelled with its count."""
    rows = [row for row in rows if sum(row[1].values())]
    if not rows:
        return None
    left = min(196, max(60, 22 + 6.4 * max(len(name) for name, _ in rows)))
    wide, step = WIDTH - left - RIGHT, 26
    drawn = []
    for i, (name, counts) in enumerate(rows):
        y, total, x = 26 + i * step, sum(counts.values()), float(left)
        drawn.append(text(left - 8, y + 14, name if len(name) <= 28 else name[:27] + "…", anchor="end", css="tick"))
        for band, css in BAND_CLASSES.items():
            width = wide * counts.get(band, 0) / total
            if not width:
                continue
            hint = escape(f"{name}: {counts[band]} of {total} {band}")
            drawn.append(
                f'<rect class="{css}" x="{at(x)}" y="{at(y)}" width="{at(width)}" height="20">'
                f"<title>{hint}</title></rect>"
            )
            if width > 8 + 7 * len(str(counts[band])):
                drawn.append(text(x + width / 2, y + 14, f"{counts[band]}", css=f"on {css}"))
            x += width
    for i, (band, css) in enumerate(BAND_CLASSES.items()):
        drawn.append(f'<rect class="{css}" x="{at(left + i * 100)}" y="6" width="11" height="11"/>')
        drawn.append(text(left + i * 100 + 16, 15, band, anchor="start", css="tick"))
    return svg(drawn, "problems by band: " + "; ".join(f"{n} {c}" for n, c in rows), height=32 + step * len(rows))


def heat_map(names: tuple[str, str], labels: Sequence[str], cells: dict[tuple[str, str], int]) -> str | None:
    """A square table of counts, shaded, with totals. names: what the rows and the columns are."""
    total = sum(cells.values())
    if not total:
        return None
    most, left, top, cell, tall = max(cells.values()), 112, 46, 88, 46
    drawn = [text(left + 1.5 * cell, 14, names[1], css="name")]
    drawn.append(text(14, top + 1.5 * tall, names[0], css="name", turned=True))
    for j, column in enumerate([*labels, "total"]):
        drawn.append(text(left + (j + 0.5) * cell, 36, column, css="tick"))
    for i, row in enumerate([*labels, "total"]):
        y = top + i * tall
        drawn.append(text(left - 8, y + tall / 2 + 4, row, anchor="end", css="tick"))
        for j, column in enumerate([*labels, "total"]):
            rows, columns = (labels if row == "total" else [row]), (labels if column == "total" else [column])
            count = sum(cells.get((r, c), 0) for r in rows for c in columns)
            x = left + j * cell
            inner = "total" not in (row, column)
            shade = f' style="--share:{count / most:.2f}"' if inner else ""
            drawn.append(
                f'<rect class="{"cell" if inner else "sum"}"{shade} x="{at(x + 1)}" y="{at(y + 1)}"'
                f' width="{cell - 2}" height="{tall - 2}" rx="3"/>'
            )
            css = "count strong" if inner and count / most > 0.55 else "count"
            drawn.append(text(x + cell / 2, y + tall / 2 + 5, f"{count:,}", css=css))
    label = f"{names[0]} against {names[1]}, {total} problems"
    return svg(drawn, label, width=left + 4 * cell + 4, height=top + 4 * tall + 4)


@dataclass(frozen=True, slots=True)
class Pair:
    """One problem under two policies."""

    name: str
    left: float
    right: float


def paired_dots(
    pairs: Sequence[Pair], names: tuple[str, str], styles: tuple[int, int], means: tuple[float, float], y_name: str
) -> str | None:
    """A column of dots for each policy, one line a problem, means as wide bars."""
    if not pairs:
        return None
    high = max(max(p.left, p.right) for p in pairs) or 1.0
    y = Scale(0.0, high * 1.05, HEIGHT - BOTTOM, TOP)
    spots = (LEFT + 0.3 * (WIDTH - LEFT - RIGHT), LEFT + 0.7 * (WIDTH - LEFT - RIGHT))
    drawn = axes(Scale(0, 1, *spots), y, [], "", y_name, share=False)
    for p in pairs:
        hint = escape(f"{p.name}: {number(p.left)} and {number(p.right)}")
        ends = path([(spots[0], y(p.left)), (spots[1], y(p.right))])
        drawn.append(f'<polyline class="tie" points="{ends}"><title>{hint}</title></polyline>')
    for side, (spot, style, name) in enumerate(zip(spots, styles, names, strict=True)):
        drawn += [mark(style, spot, y((p.left, p.right)[side]), size=2.6) for p in pairs]
        mean = means[side]
        drawn.append(
            f'<polyline class="mean s{style}" points="{path([(spot - 34, y(mean)), (spot + 34, y(mean))])}">'
            f"<title>mean {number(mean)}</title></polyline>"
        )
        drawn.append(text(spot, HEIGHT - BOTTOM + 18, name, css="name"))
    return svg(drawn, f"{y_name} of {len(pairs)} problems, {names[0]} against {names[1]}")
