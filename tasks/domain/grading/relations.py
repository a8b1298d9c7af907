r"""What stands in relations: names, values, and labels of what a problem asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.domain.grading.formulas import GREEK, Expr, Unreadable, nodes, parse
from tasks.domain.grading.shapes import Shape
from tasks.domain.grading.terms import squeeze

MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


def is_inequality(relation: Shape) -> bool:
    return relation.kind == "relation" and set(relation.marks) <= set(MIRROR)


_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:text|mathrm|angle) ?\{?[A-Za-z ]+\}?)(?: ?_ ?(?:\{[^{}]*\}"
    r"|\w))?'*(?: ?\^ ?\{ ?(?:-1|\(\d\)) ?\}(?= ?\())?(?: ?\([A-Za-z](?:, ?[A-Za-z])*\))?"
)


_CONSTANTS = ("e", "i", r"\pi", r"\infty", r"\emptyset")


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text.strip()))


_EXPONENTIAL = re.compile(r"(?<![A-Za-z\\])e(?= ?\^)")


def is_closed(text: str) -> bool:
    r"""No variables: only numbers, operators and named constants.

    >>> is_closed(r"2\sqrt{3}+\pi"), is_closed("2n")
    (True, False)
    """
    rest = re.sub(
        r"\\(?!text|mathrm|max|min|sup|inf(?!ty)|lim)[A-Za-z]+", "", re.sub(GREEK, "x", _EXPONENTIAL.sub("", text))
    )
    return bool(text) and not re.search(r"[A-Za-z]", rest.replace("e", "", 1) if rest.strip() == "e" else rest)


def named(relation: Shape) -> set[str]:
    """What a relation is about: those of its sides that are names, Greek ones too, and no constants."""
    return {i.text for i in relation.items if is_name(i.text) and i.text.strip() not in _CONSTANTS}


def in_order_of(names: Sequence[Shape], told: Shape) -> Shape:
    """`(q,p)=(5,2)` and `q=5, p=2` as the tuple that `(p,q)` asks for; anything else as it is."""
    if told.kind == "relation" and told.marks == ("=",) and told.items[0].kind == "tuple" == told.items[1].kind:
        left, right = told.items[0].items, told.items[1].items
    elif (
        told.kind in ("list", "choice")
        and not {*told.marks} & {"or", "lor"}
        and all(i.kind == "relation" and i.marks == ("=",) for i in told.items)
    ):
        left, right = tuple(i.items[0] for i in told.items), tuple(i.items[1] for i in told.items)
    else:
        return told
    wanted, given = [squeeze(n.text) for n in names], [squeeze(n.text) for n in left]
    if sorted(wanted) != sorted(given) or len(set(given)) < len(given) or len(left) != len(right):
        return told
    values = tuple(right[given.index(name)] for name in wanted)
    return Shape("tuple", f"({','.join(value.text for value in values)})", values, ("(", ")"))


def renamed(gold_name: str, name: str) -> tuple[str, str] | None:
    """(gold's variable, prediction's) of two applications of one function: f(x) and f(n)."""
    one, other = (re.fullmatch(r"([A-Za-z]+) ?\(([a-z])\)", squeeze(n)) for n in (gold_name, name))
    return (one[2], other[2]) if one and other and one[1] == other[1] else None


def named_values(items: Sequence[Shape]) -> Sequence[Shape]:
    """`y=2, x=1` names the coordinates of (1, 2): values in the order of their names, if every one has a name.

    Names that are not all Latin letters have no order but the one they are written in: `r=3, \\theta=0`.
    """
    if not all(i.kind == "relation" and i.marks == ("=",) and is_name(i.items[0].text) for i in items):
        return items
    latin = all(re.fullmatch(r"[A-Za-z]", i.items[0].text) for i in items)
    return [i.items[-1] for i in (sorted(items, key=lambda i: i.items[0].text) if latin else items)]


#: Longer texts are no labels.
MAX_LABEL_CHARS = 120
_ENCLOSED = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}|\|[^|]*\|")
_RATIO_PART = re.compile(rf"(?:{GREEK}|[A-Za-z])\w*(?:_\{{?\w+\}}?)?'*|[A-Z]{{2,4}}")
_PLAIN = re.compile(rf"(?:[a-z]|{GREEK})(?:_.*)?")
_EXTREME = re.compile(r"_\\?(?:max|min)$")


def is_label(text: str) -> bool:
    r"""Is it what a problem asks for and no equation: a ratio of names, a length, a value of a function, a limit?

    >>> [is_label(t) for t in ("V_1:V_2", "|AB|", r"\frac{NO}{BO}", r"\cos A", "|a-b|", "f'(1)", "P(X=1)")]
    [True, True, True, True, True, True, True]
    >>> [is_label(t) for t in (r"\vec a\cdot\vec b", r"\lim a_n", "x+z", "f(x+1)", "|x|+|y|", "2x")]
    [True, True, False, False, False, False]
    """
    text = text.strip()
    if not text or len(text) > MAX_LABEL_CHARS or is_closed(text):
        return False
    parts = re.split(" ?[:/] ?", text)
    if len(parts) > 1 and all(map(_RATIO_PART.fullmatch, parts)):
        return True
    try:
        return _is_label(parse(text), whole=True)
    except Unreadable:
        outside = text
        while (shorter := _ENCLOSED.sub("", outside)) != outside:
            outside = shorter
        return not re.search(r"[-+]", outside)


def _is_label(formula: Expr, whole: bool = False) -> bool:
    match formula.op:
        case "name":
            return not _PLAIN.fullmatch(formula.args[0])
        case "num" | "const":
            return not whole
        case "abs":
            return whole or not any(_PLAIN.fullmatch(n.args[0]) for n in nodes(formula) if n.op == "name")
        case "call":
            plain = [n for n in nodes(formula) if n.op == "name" and _PLAIN.fullmatch(n.args[0])]
            return not plain
        case "lim" | "int" | "sum" | "prod" | "max" | "min" | "gcd" | "lcm" | "det":
            return whole
        case "/" if whole and all(part.op == "name" for part in formula.args):
            return True
        case "^":
            return _is_label(formula.args[0], whole=whole and formula.args[0].op == "abs")
    return all(_is_label(part) for part in formula.args if isinstance(part, Expr)) and formula.op in (
        *("+", "*", "/", "neg", "sin", "cos", "tan", "cot", "sec", "csc"),
    )


def same_label(one: str, other: str) -> bool:
    r"""Do two labels name the same, however letters and bars are set?

    >>> same_label(r"\Pr(X=1)", "P(X = 1)"), same_label(r"\overline{AB}", "|AB|"), same_label("f(2)", "f(3)")
    (True, True, False)
    >>> same_label(r"m_{\max }", "m"), same_label(r"m_{\max}", r"m_{\min}")
    (True, False)
    """
    one, other = _bare(one), _bare(other)
    return one == other or (
        _EXTREME.sub("", one) == _EXTREME.sub("", other) and not _EXTREME.search(min(one, other, key=len))
    )


def _bare(label: str) -> str:
    label = re.sub(r"\\(max|min)(?![A-Za-z])", r"\1", re.sub(r"\\Pr(?![A-Za-z])", "P", label))
    label = re.sub(
        r"\\(?:overline|overrightarrow|vec|mathbb|mathrm|text|operatorname|[lr]?vert)(?![A-Za-z])", "", label
    )
    sides = re.sub(r"(?<![A-Za-z])\|? ?\{? ?([A-Z]{2}) ?\}? ?\|?(?![A-Za-z])", r"\1", label)
    return squeeze(re.sub(r"[{} ]", "", sides))
