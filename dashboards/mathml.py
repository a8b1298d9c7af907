"""Formulas as MathML, which browsers set by themselves: nothing is fetched and nothing runs."""

from __future__ import annotations

from functools import lru_cache
from xml.etree import ElementTree

from storage.errors import UserError

SPACE = "http://www.w3.org/1998/Math/MathML"
_ELEMENTS = (
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mmultiscripts"
    " mprescripts none mtable mtr mtd mstyle mpadded mphantom menclose"
)
_ATTRIBUTES = "display displaystyle stretchy accent mathvariant linethickness columnalign notation width"
#: What only arranges what is read; of attributes those that do no more.
ELEMENTS, ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())
#: A longer formula stays as it is written.
LONGEST = 2_000
ElementTree.register_namespace("", SPACE)


@lru_cache(maxsize=4096)
def mathml(formula: str, *, display: bool) -> str:
    r"""The formula set; empty for one that cannot be read, which is then shown as it is written.

    >>> "<mfrac>" in mathml(r"\frac{1}{2}", display=False), mathml(r"\frac{", display=False)
    (True, '')
    """
    if len(formula) > LONGEST:
        return ""
    from latex2mathml.converter import convert

    # the converter does not escape what stands in \text{…}
    safe = formula.replace("<", r"\lt ").replace(">", r"\gt ")
    try:
        top = ElementTree.fromstring(convert(safe, display="block" if display else "inline"))
    except UserError:  # that the process is to stop
        raise
    except Exception:  # of a parser that is handed whatever a model wrote, and that ends in a dozen kinds
        return ""
    for element in top.iter():
        if element.tag.removeprefix(f"{{{SPACE}}}") not in ELEMENTS:
            return ""
        element.attrib = {name: value for name, value in element.attrib.items() if name in ATTRIBUTES}
    return ElementTree.tostring(top, encoding="unicode")
