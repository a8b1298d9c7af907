"""Drawings of the report as pages of a PDF, for papers: the few elements that they are made of, under the rules of
their own style sheet, in PDF's operators and its built-in Helvetica. One drawing, one page of its size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from tasks.report.style import drawing_sheet

Rules = Sequence[tuple[str, frozenset[str], Mapping[str, str]]]
#: Widths of Helvetica's characters from the space to the tilde, in thousandths of its size (Adobe's metrics).
WIDTHS = [
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, *[556] * 10, 278, 278, 584, 584),
    *(584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667),
    *(611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222),
    *(222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
]
ROUND = 0.5523  # of a quarter circle's control points


def as_pdf(drawings: Sequence[str]) -> bytes:
    """drawings: SVG as `tasks.report.svg` writes it."""
    rules, objects = _rules(drawing_sheet()), [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    for name in ("Helvetica", "Helvetica-Bold"):
        objects.append(f"<</Type/Font/Subtype/Type1/BaseFont/{name}/Encoding/WinAnsiEncoding>>".encode())
    steps = " ".join(f"/G{n}<</ca {n / 100}/CA {n / 100}>>" for n in range(101))
    objects.append(f"<</Font<</F0 3 0 R/F1 4 0 R>>/ExtGState<<{steps}>>>>".encode())
    pages = []
    for drawing in drawings:
        top = ElementTree.fromstring(drawing)
        width, height = (float(side) for side in top.attrib["viewBox"].split()[2:])
        body = "\n".join(line for element in top.iter() for line in _drawn(element, rules, height)).encode("cp1252")
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(body), body))
        box = f"/MediaBox[0 0 {width:g} {height:g}]/Contents {len(objects)} 0 R"
        objects.append(f"<</Type/Page/Parent 2 0 R/Resources 5 0 R{box}>>".encode())
        pages.append(f"{len(objects)} 0 R")
    objects[1] = f"<</Type/Pages/Kids[{' '.join(pages)}]/Count {len(pages)}>>".encode()
    return _file(objects)


def _file(objects: Sequence[bytes]) -> bytes:
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%s%s" % (size, table, end)


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


def _colour(said: str) -> tuple[str, float] | None:
    """PDF's words for a colour, and how much covers what is below; null for none."""
    if found := re.fullmatch(r"#(\w\w)(\w\w)(\w\w)", said):
        return " ".join(f"{int(part, 16) / 255:.3f}" for part in found.groups()), 1.0
    if found := re.fullmatch(r"#(\w)(\w)(\w)", said):
        return _colour("#" + "".join(2 * part for part in found.groups()))
    if found := re.fullmatch(r"rgba\((\d+),(\d+),(\d+),calc\(([\d.]+) \+ ([\d.]+)\*([\d.]+)\)\)", said):
        least, by, share = map(float, found.groups()[3:])
        return " ".join(f"{int(part) / 255:.3f}" for part in found.groups()[:3]), least + by * share
    return None


def _drawn(element: ElementTree.Element, rules: Rules, height: float) -> Iterator[str]:
    tag, get = element.tag, lambda name: float(element.get(name, "0"))
    if tag not in ("line", "polyline", "polygon", "rect", "circle", "text"):
        return
    look = _look(element, rules)
    fill, stroke = _colour(look.get("fill", "#000")), _colour(look.get("stroke", "none"))
    opacity = float(look.get("opacity", "1")) * (fill or stroke or ("", 1.0))[1]
    yield f"q /G{round(100 * min(1.0, opacity))} gs"
    if fill:
        yield f"{fill[0]} rg"
    if tag == "text":
        yield from _text(element, look, height)
        yield "Q"
        return
    if stroke:
        yield f"{stroke[0]} RG {float(look.get('stroke-width', '1')):g} w"
    if dash := look.get("stroke-dasharray"):
        yield f"[{dash}] 0 d"
    if tag == "rect":
        yield f"{get('x'):g} {height - get('y') - get('height'):g} {get('width'):g} {get('height'):g} re"
    elif tag == "circle":
        yield from _circle(get("cx"), height - get("cy"), get("r"))
    else:
        pairs = (pair.split(",") for pair in element.get("points", "").split())
        ends = (
            [(get("x1"), get("y1")), (get("x2"), get("y2"))]
            if tag == "line"
            else [(float(x), float(y)) for x, y in pairs]
        )
        yield " ".join(f"{x:g} {height - y:g} {'l' if n else 'm'}" for n, (x, y) in enumerate(ends))
    closed = tag not in ("line", "polyline")
    yield ("B" if fill and stroke else "f" if fill else "S" if stroke else "n") if closed else "S" if stroke else "n"
    yield "Q"


def _circle(x: float, y: float, r: float) -> Iterator[str]:
    k = ROUND * r
    yield f"{x + r:g} {y:g} m"
    for (a, b), (c, d) in (((1, 0), (0, 1)), ((0, 1), (-1, 0)), ((-1, 0), (0, -1)), ((0, -1), (1, 0))):
        first, second = (x + a * r + c * k, y + b * r + d * k), (x + c * r + a * k, y + d * r + b * k)
        yield f"{first[0]:g} {first[1]:g} {second[0]:g} {second[1]:g} {x + c * r:g} {y + d * r:g} c"


def _text(element: ElementTree.Element, look: Mapping[str, str], height: float) -> Iterator[str]:
    said = (element.text or "").replace("−", "–").encode("cp1252", "replace").decode("cp1252")
    size = float(look.get("font-size", "12px").removesuffix("px"))
    long = sum(WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else 556 for c in said) * size / 1000
    back = {"middle": long / 2, "end": long}.get(element.get("text-anchor", "start"), 0.0)
    x, y = float(element.get("x", "0")), height - float(element.get("y", "0"))
    turned = "rotate(-90" in element.get("transform", "")
    where = f"0 1 -1 0 {x:g} {y - back:g}" if turned else f"1 0 0 1 {x - back:g} {y:g}"
    spelt = re.sub(r"([\\()])", r"\\\1", said)
    yield f"BT /F{int(look.get('font-weight') == '600')} {size:g} Tf {where} Tm ({spelt}) Tj ET"
