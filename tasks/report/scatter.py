"""Named points with the intervals of both axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Scale, at, mark, number, path, svg, text, ticks

TALL = 420
#: A name is drawn where no other one stands so near.
APART = 11.0
End = tuple[float, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Spot:
    """x, y: the value and its interval, null where there is none."""

    name: str
    x: End
    y: End


def scatter(spots: Sequence[Spot], style: int, x_name: str, y_name: str) -> str | None:
    """One mark a spot; names stand beside, moved down where they would meet. Null if there is nothing to draw."""
    if not spots:
        return None
    x, y = (
        _scale([s.x for s in spots], LEFT + 8, WIDTH - RIGHT - 96),
        _scale([s.y for s in spots], TALL - BOTTOM, TOP),
    )
    drawn = _grid(x, y, x_name, y_name)
    taken: list[tuple[float, float]] = []
    for s in sorted(spots, key=lambda s: -s.y[0]):
        here = x(s.x[0]), y(s.y[0])
        for low, high, ends in (
            (s.x[1], s.x[2], lambda v, h=here: (x(v), h[1])),
            (*s.y[1:], lambda v, h=here: (h[0], y(v))),
        ):
            if low is not None and high is not None:
                drawn.append(f'<polyline class="tie" points="{path([ends(low), ends(high)])}"/>')
        drawn.append(mark(style, *here, f"{s.name}: {number(s.x[0])}, {number(s.y[0])}"))
        line = here[1] + 4
        while any(abs(line - other) < APART and abs(here[0] - along) < 110 for along, other in taken):
            line += 2
        taken.append((here[0], line))
        drawn.append(text(here[0] + 8, line, s.name, anchor="start", css="tick"))
    return svg(drawn, f"{y_name} against {x_name}, {len(spots)} points", height=TALL)


def _scale(ends: Sequence[End], start: float, end: float) -> Scale:
    values = [v for triple in ends for v in triple if v is not None]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.05 * ((high - low) or 1.0)
    return Scale(low - room, high + room, start, end)


def _grid(x: Scale, y: Scale, x_name: str, y_name: str) -> list[str]:
    """Lines at round values, the ones at zero stronger."""
    drawn = []
    for value in ticks(y.low, y.high):
        css, here = ("axis" if value == 0 else "grid"), at(y(value))
        drawn.append(f'<line class="{css}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{here}" y2="{here}"/>')
        drawn.append(text(LEFT - 6, y(value) + 4, number(value), anchor="end", css="tick"))
    for value in ticks(x.low, x.high):
        css, here = ("axis" if value == 0 else "grid"), at(x(value))
        drawn.append(f'<line class="{css}" x1="{here}" x2="{here}" y1="{TOP}" y2="{TALL - BOTTOM}"/>')
        drawn.append(text(x(value), TALL - BOTTOM + 16, number(value), css="tick"))
    drawn.append(text((LEFT + WIDTH - RIGHT) / 2, TALL - 8, x_name, css="name"))
    drawn.append(text(13, (TOP + TALL - BOTTOM) / 2, y_name, css="name", turned=True))
    return drawn
