"""Rollouts for display. Rollouts are parsed into tags, speakers, formulas and text, and rendered as Markdown, with
formulas as MathML. Texts of rollouts and problems are never read as markup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from xml.etree import ElementTree

from storage.errors import UserError, printable

#: A box. It needs no dollar signs around it.
BOX = r"\\boxed\{(?:[^{}$\n]++|\{(?:[^{}$\n]++|\{[^{}$\n]*+\})*+\})*+\}"
#: The parts of a rollout other than plain text, by kind. A speaker begins a line, a sentence or the text of a tag.
PARTS = re.compile(
    r"(?P<tag></?(?:mutipersonaDebate|think|answer)>)"
    r"|(?:(?:\A|(?<=>))\s*|(?<=\n)|(?<=[.?!] ))(?P<speaker>(?:Expert|Persona) \d+|[A-Z][a-z]{1,15}):(?=\s)"
    r"|\$\$(?P<display1>.+?)\$\$|\\\[(?P<display2>.+?)\\\]|\\\((?P<math1>.+?)\\\)"
    rf"|(?<![\\$\d])\$(?P<math2>[^$\n]{{1,400}}?)\$(?!\d)|(?P<math3>{BOX})",
    re.DOTALL,
)
DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")

Kind = Literal["tag", "speaker", "display", "math", "text"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text. display, math: a formula without its delimiters, on its own line or inside text."""

    kind: Kind
    text: str


def pieces(text: str) -> list[Piece]:
    r"""
    >>> [(p.kind, p.text) for p in pieces(r"<think>Ann: so \(x=1\).</think>")]
    [('tag', '<think>'), ('speaker', 'Ann'), ('text', ' so '), ('math', 'x=1'), ('text', '.'), ('tag', '</think>')]
    """
    found, end = list[Piece](), 0
    for part in PARTS.finditer(text):
        kind: Any = str(part.lastgroup).rstrip("123")
        own = part[str(part.lastgroup)]
        found.append(Piece("text", plain(text[end : part.start()])))
        found.append(Piece(kind, own if kind in ("tag", "speaker") else plain(re.sub(r"\s+", " ", own.strip()))))
        end = part.end()
    return [piece for piece in (*found, Piece("text", plain(text[end:]))) if piece.text]


def plain(text: str) -> str:
    """Return the text with names in place of characters that change its direction or control a terminal."""
    named = DIRECTION.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", text)
    return printable(named, "\n\t")


# ---- rollouts as Markdown: formulas are typeset, tags are marked, everything else is literal

#: Most characters of a rollout that a page shows.
MOST = 20_000
#: Characters that mean something in Markdown. A backslash makes each literal.
MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~^:$&=\"'])")


def literal(text: str) -> str:
    r"""Return the text escaped for markdown.

    >>> print(literal("<b>*x*</b>"))
    \<b\>\*x\*\</b\>
    """
    return MARKS.sub(r"\\\1", plain(text)).replace("\n", "  \n").replace("\t", " ")


def marked(text: str) -> str:
    return "".join(_markdown(piece) for piece in pieces(text[:MOST]))


def formula(text: str) -> str:
    """Return an answer or a gold as a typeset formula."""
    return _markdown(Piece("math", text.strip().strip("$").replace("\n", " ")[:300]))


def _markdown(piece: Piece) -> str:
    safe = piece.text.replace("$", r"\$")
    match piece.kind:
        case "tag":
            return f" :blue-badge[{literal(piece.text)}] "
        case "speaker":
            return f"\n\n**{literal(piece.text)}:**"
        case "display":
            return f"\n\n$$\n{safe}\n$$\n\n" if safe.strip() else ""
        case "math":
            return f"${safe}$" if safe.strip() else ""
        case _:
            return literal(piece.text)


# ---- formulas as MathML, which browsers typeset themselves, so that nothing is downloaded or executed

SPACE = "http://www.w3.org/1998/Math/MathML"
_ELEMENTS = (
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mmultiscripts"
    " mprescripts none mtable mtr mtd mstyle mpadded mphantom menclose"
)
_ATTRIBUTES = "display displaystyle stretchy accent mathvariant linethickness columnalign notation width"
#: MathML elements and attributes that change only the layout of a formula.
ELEMENTS, ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())
#: A formula with more characters is shown as LaTeX.
LONGEST = 2_000
ElementTree.register_namespace("", SPACE)


@lru_cache(maxsize=4096)
def mathml(formula: str, *, display: bool) -> str:
    r"""Return the formula in MathML, or an empty text if it cannot be parsed (it is then shown as LaTeX).

    >>> "<mfrac>" in mathml(r"\frac{1}{2}", display=False), mathml(r"\frac{", display=False)
    (True, '')
    """
    if len(formula) > LONGEST:
        return ""
    from latex2mathml.converter import convert

    # the converter does not escape the contents of \text{…}
    safe = formula.replace("<", r"\lt ").replace(">", r"\gt ")
    try:
        top = ElementTree.fromstring(convert(safe, display="block" if display else "inline"))
    except UserError:  # a signal asked this process to stop
        raise
    except Exception:  # malformed formulas make the converter raise many kinds of errors
        return ""
    for element in top.iter():
        if element.tag.removeprefix(f"{{{SPACE}}}") not in ELEMENTS:
            return ""
        element.attrib = {name: value for name, value in element.attrib.items() if name in ATTRIBUTES}
    return ElementTree.tostring(top, encoding="unicode")
