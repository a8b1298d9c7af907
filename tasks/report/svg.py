"""SVG by hand: scales, ticks, axes and marks of the report's charts. Text in, text out; colours are CSS classes.

A chart is one `<svg>` with a viewBox, so it scales to a phone; `s0`, `s1`, … are the styles of the series, which the
page's style sheet colours for light, dark and print. Shapes differ with the style too, so colour is never alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from storage.reading.figures import ARM_STYLES

WIDTH, HEIGHT = 480, 290
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 30, 44


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from data to the drawing; `log` maps log2 instead."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, here = self.low, self.high, value
        if self.log:
            low, high, here = math.log2(low), math.log2(high), math.log2(here)
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that lie in [low, high], about so many.

    >>> ticks(0, 1), ticks(0, 40, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10.0, 20.0, 30.0, 40.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that lie in [low, high]; the ends where fewer than two do. low > 0.

    >>> log_ticks(26.3, 124.4), log_ticks(3, 4)
    ([50.0, 100.0], [3, 4])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return found if len(found) > 1 else [low, high]


def number(value: float | None, digits: int = 3) -> str:
    """
    >>> number(1234.5), number(0.12345), number(None), number(12.0), number(-1.01e-17)
    ('1,234', '0.123', '–', '12', '0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) < 1e-12:  # what a difference of equal sums leaves
        return "0"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if abs(value) < 1e-3 else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}".removesuffix(".0") + " %"


def at(value: float) -> str:
    """A coordinate: one decimal, no negative zero, the same text on every machine."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def mark(style: int, x: float, y: float, hint: str = "", size: float = 3.4) -> str:
    """The series' own shape at a point."""
    title = f"<title>{escape(hint)}</title>" if hint else ""
    css, r, s = f"m s{style}", size, size + 1
    match ARM_STYLES[style].shape:
        case "circle":
            return f'<circle class="{css}" cx="{at(x)}" cy="{at(y)}" r="{at(r)}">{title}</circle>'
        case "square":
            where = f'x="{at(x - r)}" y="{at(y - r)}" width="{at(2 * r)}" height="{at(2 * r)}"'
            return f'<rect class="{css}" {where}>{title}</rect>'
        case "triangle-up":
            corners = [(0, -s), (s, r), (-s, r)]
        case "triangle-down":
            corners = [(0, s), (s, -r), (-s, -r)]
        case "diamond":
            corners = [(0, -s), (s, 0), (0, s), (-s, 0)]
        case "cross":
            t = r / 3
            corners = [(-t, -r), (t, -r), (t, -t), (r, -t), (r, t), (t, t), (t, r), (-t, r), (-t, t), (-r, t), (-r, -t)]
            corners.append((-t, -t))
        case other:
            raise ValueError(f"arm_style {style}: no drawing of the shape '{other}'")
    return f'<polygon class="{css}" points="{path([(x + dx, y + dy) for dx, dy in corners])}">{title}</polygon>'


def path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{at(x)},{at(y)}" for x, y in points)


def text(x: float, y: float, content: str, *, anchor: str = "middle", css: str = "", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {at(x)} {at(y)})"' if turned else ""
    css = f' class="{css}"' if css else ""
    return f'<text x="{at(x)}" y="{at(y)}" text-anchor="{anchor}"{css}{turn}>{escape(content)}</text>'


def axes(x: Scale, y: Scale, x_ticks: Sequence[float], x_name: str, y_name: str, *, share: bool) -> list[str]:
    """Grid, tick labels and names. share: the vertical axis is printed in percent."""
    spell = percent if share else number
    drawn = []
    for value in ticks(y.low, y.high):
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at(y(value))}" y2="{at(y(value))}"/>')
        drawn.append(text(LEFT - 6, y(value) + 4, spell(value), anchor="end", css="tick"))
    for value in x_ticks:
        drawn.append(text(x(value), HEIGHT - BOTTOM + 16, number(value), css="tick"))
    drawn.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    drawn.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, css="name"))
    drawn.append(text(13, (TOP + HEIGHT - BOTTOM) / 2, y_name, css="name", turned=True))
    return drawn


def svg(parts: Sequence[str], label: str, *, width: float = WIDTH, height: float = HEIGHT) -> str:
    """label: what a screen reader says."""
    return (
        f'<svg viewBox="0 0 {at(width)} {at(height)}" role="img" aria-label="{escape(label, quote=True)}">'
        + "".join(parts)
        + "</svg>"
    )
