"""The report's style sheet: its own rules, and the colours of page, arms and bands as the figures declare them."""

from __future__ import annotations

import re
from pathlib import Path

from storage.reading.figures import ARM_STYLES, BAND_STYLES, PAGE_STYLES, variables

TEMPLATES = Path(__file__).parent / "templates"
#: Variable of the style sheet → style. A series of style n has the classes `s<n>`, a band those of its place, `b<n>`.
STYLES = {f"s{n}": style for n, style in enumerate(ARM_STYLES)} | {
    f"b{n}": style for n, style in enumerate(BAND_STYLES.values())
}
#: Classes by band.
BAND_CLASSES = {band: f"b{n}" for n, band in enumerate(BAND_STYLES)}


def _classes() -> str:
    rules = (
        f"rect.{name}{{fill:var(--{name})}}" if name.startswith("b") else f".{name}{{--c:var(--{name})}}"
        for name in STYLES
    )
    return "".join(rules) + "\n"


def style_sheet() -> str:
    """Light, dark where the reader's system is, and light again on paper."""
    light, dark = (f":root{{{variables(PAGE_STYLES | STYLES, dark=on)}}}" for on in (False, True))
    by_medium = f"@media(prefers-color-scheme:dark){{{dark}}}\n@media print{{{light}}}"
    return f"{light}\n{by_medium}\n{_classes()}{(TEMPLATES / 'report.css').read_text()}"


def drawing_sheet() -> str:
    """What one drawing needs to be shown outside the report's page: light."""
    css = (TEMPLATES / "report.css").read_text()
    own = "".join(line for line in css.splitlines() if re.match(r"svg|\.(grid|line|fill|tie|cell)", line))
    return (
        f":root{{{variables(PAGE_STYLES | STYLES)}}}{css[: css.index('@media')]}".replace("\n", "")
        + own
        + _classes().strip()
    )


def standing_alone(svg: str) -> str:
    """A drawing with what it needs to be shown outside the report's page: light, on white."""
    head, _, rest = re.sub(r"<title>.*?</title>", "", svg).partition(">")
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    return f'{head}><style>{drawing_sheet()}</style><rect width="100%" height="100%" fill="#fff"/>{rest}\n'
