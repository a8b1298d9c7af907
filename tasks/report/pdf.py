"""Drawings of the report as pages of a PDF, for papers: one drawing, one page of its size, letters as letters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from xml.etree import ElementTree

from tasks.report.style import drawing_sheet

Rules = Sequence[tuple[str, frozenset[str], Mapping[str, str]]]
#: Of the style sheet, what a drawing's elements are drawn by.
LOOKS = ("fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight")
#: Of letters that a PDF's built-in fonts lack, what they have instead.
SPELT = str.maketrans({"−": "-", "–": "-", "—": "-", "‑": "-", "…": "...", "→": "to", "≥": ">=", "≤": "<="})


def as_pdf(drawings: Sequence[str]) -> bytes:
    """drawings: SVG as `tasks.report.svg` writes it."""
    from fpdf import FPDF

    pdf = FPDF(unit="pt")
    pdf.set_creation_date(datetime(2000, 1, 1, tzinfo=UTC))  # the same drawing is the same file
    rules = _rules(drawing_sheet())
    for drawing in drawings:
        top = ElementTree.fromstring(drawing)
        width, height = (float(side) for side in top.attrib["viewBox"].split()[2:])
        pdf.add_page(format=(width, height))
        pdf.image(BytesIO(_by_itself(top, rules)), x=0, y=0, w=width, h=height)
    return bytes(pdf.output())


def _by_itself(top: ElementTree.Element, rules: Rules) -> bytes:
    """A drawing whose elements say how they look, without a style sheet."""
    top.set("xmlns", "http://www.w3.org/2000/svg")
    for element in top.iter():
        look = _look(element, rules)
        for name in ("class", "style", "role", "aria-label"):
            element.attrib.pop(name, None)
        for name in LOOKS:
            if name in look:
                element.set(name, look[name].removesuffix("px"))
        if found := re.fullmatch(
            r"rgba\((\d+),(\d+),(\d+),calc\(([\d.]+) \+ ([\d.]+)\*([\d.]+)\)\)", look.get("fill", "")
        ):
            red, green, blue, least, by, share = map(float, found.groups())
            element.set("fill", f"#{int(red):02x}{int(green):02x}{int(blue):02x}")
            element.set("fill-opacity", f"{least + by * share:.4f}")
        if element.tag == "text":
            element.set("font-family", "helvetica")
            element.set("font-weight", "bold" if look.get("font-weight") == "600" else "normal")
            element.text = (element.text or "").translate(SPELT).encode("latin-1", "replace").decode("latin-1")
    for parent in list(top.iter()):
        for child in [child for child in parent if child.tag == "title"]:
            parent.remove(child)
    return ElementTree.tostring(top)


def _rules(css: str) -> Rules:
    """(element, classes, declarations) of each rule whose last word is of these two, in order of their weight."""
    found = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        told = dict(one.split(":", 1) for one in body.split(";") if ":" in one)
        for selector in selectors.split(","):
            tag, *classes = selector.split()[-1].split(".")
            found.append((tag.lstrip("*"), frozenset(classes), told))
    return sorted(found, key=lambda rule: (len(rule[1]), bool(rule[0])))


def _look(element: ElementTree.Element, rules: Rules) -> dict[str, str]:
    """What the style sheet says of an element, its variables filled in."""
    classes, told = set(element.get("class", "").split()), {}
    for tag, wanted, said in rules:
        if (tag in ("", element.tag) and wanted and wanted <= classes) or (
            tag in (element.tag, ":root") and not wanted
        ):
            told |= said
    told |= dict(one.split(":", 1) for one in element.get("style", "").split(";") if ":" in one)

    def filled(said: str) -> str:  # a variable may name another
        return re.sub(r"var\((--\w+)\)", lambda found: filled(told.get(found[1], "")), said).strip()

    return {name: filled(said) for name, said in told.items()}
