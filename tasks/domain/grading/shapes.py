r"""The outer form of an answer: scalar, list, set, tuple, interval, union or relation. Its terms are texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import Literal

from tasks.domain.grading.formulas import GREEK, Unreadable, is_constant, nodes, number, parse
from tasks.domain.grading.texts import closing, normalise, prose_words, split

#: Relations as they are compared.
CANONICAL = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne"}
#: Inequalities read from right to left.
MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


def squeeze(text: str) -> str:
    """Return a text without insignificant spaces."""
    return re.sub(r"(?<![A-Za-z\d]) | (?![A-Za-z\d])|(?<=\d) (?=[A-Za-z])|(?<=[A-Za-z]) (?=\d)", "", text)


#: No factor or power follows a letter that counts periods: `\pi n^2` counts none.
_ENDS = r"(?! ?(?:(?!i(?![A-Za-z]))[A-Za-z]|[\^!_(]))"
#: A letter that counts periods, and the argument of a function.
_FREE = (
    re.compile(rf"\\pi ?([k-n]){_ENDS}|(?<![A-Za-z\\^_])([k-n]) ?\\pi(?![A-Za-z]){_ENDS}"),
    re.compile(r"(?<![A-Za-z\\])[A-Za-z]+ ?\(([a-z])\)(?= ?=)"),
)


def with_letters_of(text: str, gold: str) -> str:
    r"""Return the text with the gold's letters for the integer that counts periods and for the argument of a function.

    >>> with_letters_of(r"\frac{\pi}{6}+n\pi", r"\frac{\pi}{6}+k\pi")
    '\\frac{\\pi}{6}+k\\pi'
    """
    for pattern in _FREE:
        mine, wanted = ({found[found.lastindex or 0] for found in pattern.finditer(t)} for t in (text, gold))
        if len(mine) == len(wanted) == 1 and min(wanted) not in re.sub(r"\\[A-Za-z]+", "", text):
            text = re.sub(rf"(?<![A-Za-z\\]){min(mine)}(?![A-Za-z])", min(wanted), text)
    return text


def counts_periods(text: str) -> bool:
    return bool(_FREE[0].search(text))


Kind = Literal["scalar", "list", "choice", "set", "tuple", "interval", "union", "relation"]
#: Signs of relations. In `7!=5040` the sign is `=`.
_RELATION = re.compile(r"\\(?:ne|le|ge|approx|in|equiv)(?![A-Za-z])|<=|>=|(?<![\d)])!=|=|<|>")
_COMMA, _SEMICOLON, _BETWEEN = re.compile(r"(?<!\\),"), re.compile(r"(?<!\\);"), re.compile(r"(?<!\\)[,;]")
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_JOINED = re.compile(
    r"\\text ?\{ ?,? ?(?:and|or) ?\}|(?<![A-Za-z\\])(?:and|or|OR|AND)(?![A-Za-z])"
    r"|\\(?:vee|lor|wedge|land)(?![A-Za-z])"
)
_JOINS = {"vee": "lor", "lor": "lor", "wedge": "land", "land": "land"}
_MATRIX = re.compile(
    r"\\begin ?\{(?P<name>[pbB]?(?:small)?matrix|array)\}(?: ?\{[lcr| ]*\})?"
    r"(?P<inner>(?:(?!\\begin|\\end).)*)\\end ?\{(?P=name)\}",
    re.S,
)
_POINTS = re.compile(r"^\{(.*)\}$")
#: Other ways to write a set of numbers.
_NOTATIONS = (
    (r"\\mathbb\{R\}", r"(-\\infty,\\infty)"),
    (r"(?:\\text ?\{)? ?(?:all |the )?(?:set of (?:all )?)?reals?(?: numbers?)?(?: x)? ?\}?", r"(-\\infty,\\infty)"),
    (r"\\mathbb ?\{?R\}? ?\^ ?\{? ?\+ ?\}?", "x>0"),
    (r"\\mathbb ?\{?R\}? ?_ ?\{ ?(<|>|\\[lg]e) ?0 ?\}", r"x\1 0"),
    (r"\\\{ ?[A-Za-z](?: ?\\in ?\\mathbb ?\{?R\}?)? ?(?::|\||\\mid) ?(.*?) ?\\\}", r"\1"),
    (r"=(?!=)(.*)", r"\1"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """text: normalised source. items: parts, in order. marks: brackets, signs, or the words
    between parts. condition: the stated range of its letters, if any."""

    kind: Kind
    text: str
    items: tuple[Shape, ...] = ()
    marks: tuple[str, ...] = ()
    condition: str = ""


def shape(text: str) -> Shape:
    r"""Return the form of an answer in any notation.

    >>> shape(r"\{1, 2\}").kind, shape("(1,2)").kind, shape("[1,2)").kind, shape("2 or 3").kind, shape("x=3").kind
    ('set', 'tuple', 'interval', 'list', 'relation')
    """
    text = normalise(text)
    if (found := _CONDITION.search(text)) and (main := text[: found.start()].strip(" ,;")):
        name = found["all"] or found["name"]
        letters = main if "\\" in name else re.sub(r"\\[A-Za-z]+", " ", main)
        whole = found["sign"] is None or name in "ijklmn"
        if name in letters and whole and not re.search(r"[<>]|\\(?:le|ge|ne|in)(?![A-Za-z])", main):
            domain = found["set"] or (f"{found['sign']}{found['low']}" if found["name"] else "")
            return replace(_shape(main), condition=squeeze(domain))
    return _shape(text)


_LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|theta|lambda|mu))(?:_\{?\w\}?)?"
#: `, k \in \mathbb{Z}`, `\forall x`, `(n \ge 1)` behind a formula.
_CONDITION = re.compile(
    rf"(?:[,;] ?| (?=\\forall)|\()(?:\\forall ?(?P<all>{_LETTER})|(?:\\forall ?)?(?P<name>{_LETTER})(?:, ?{_LETTER})* ?"
    r"(?:\\in ?(?P<set>\\mathbb ?\{?[RZNQC]\}?(?: ?[\^_] ?\{? ?(?:[+*0]|\\ast|\\ge ?0) ?\}?)?)|(?P<sign>\\ge|>)"
    r" ?(?P<low>[0-3])))\)?$"
)


def _shape(text: str) -> Shape:
    text = text.strip()
    if number(text) is not None:
        return Shape("scalar", text)
    if (matrix := _matrix(text)) is not None:
        return matrix
    for notation, form in _NOTATIONS:
        if found := re.fullmatch(notation, text, re.I):
            return _shape(found.expand(form))
    for separator in (_JOINED, _SEMICOLON, _COMMA):
        parts, joins = split(text, separator)
        if len(parts := [part for p in parts if (part := p.strip(" ,;"))]) > 1:
            marks = tuple(_JOINS.get(join[1:], "or" if "or" in join.lower() else "and") for join in joins)
            items, joined = _as_items(parts), separator is _JOINED
            listed = not joined or ("land" not in marks and _are_values(items))
            return Shape("list" if listed else "choice", text, items, marks if joined else ())
    if both := _plus_minus(text):
        return Shape("list", text, tuple(map(_shape, both)))
    unions, _ = split(text, _CUP)
    sides, signs = split(text, _RELATION)
    if len(unions) > 1 and not (signs[:1] == ["="] and r"\cup" in sides[0]):
        return Shape("union", text, tuple(_shape(_POINTS.sub(r"\{\1\}", u)) for u in unions))
    if signs:
        return Shape("relation", text, tuple(map(_shape, sides)), tuple(CANONICAL.get(sign, sign) for sign in signs))
    return _bracketed(text) or Shape("scalar", text)


def _are_values(items: Sequence[Shape]) -> bool:
    """Return whether all items are values, or equations for the same name."""
    names = {item.items[0].text if item.kind == "relation" else "" for item in items}
    return len(names) == 1 and all(item.kind != "relation" or {*item.marks} == {"="} for item in items)


def _matrix(text: str) -> Shape | None:
    """Read a column as a tuple, and any other matrix as the tuple of its rows. A determinant is a number."""
    found = _MATRIX.fullmatch(text[1:-1].strip() if text[:1] + text[-1:] in ("()", "[]") else text)
    lines = re.sub(r"\\\\\s*$", "", found["inner"]).split(r"\\") if found else []
    rows = [[_shape(cell) for cell in re.split(r"(?<!\\)&", line)] for line in lines]
    if len({*map(len, rows)}) != 1:
        return None
    if len(rows[0]) == 1 < len(rows):
        return Shape("tuple", text, tuple(cell for (cell,) in rows))
    return Shape("tuple", text, tuple(Shape("tuple", " & ".join(c.text for c in row), tuple(row)) for row in rows))


def _bracketed(text: str) -> Shape | None:
    if text.startswith(r"\{") and text.endswith(r"\}") and text.count(r"\{") == 1:
        inner = text[2:-2].strip()
        return Shape("set", text, _as_items(split(inner, _BETWEEN)[0]) if inner else ())
    if text == r"\emptyset":
        return Shape("set", text, ())
    if text.startswith("{") and closing(text, 1) == len(text) - 1:
        inside, _ = split(text[1:-1], _COMMA)
        return Shape("set", text, tuple(map(_shape, inside))) if len(inside) > 1 else _shape(text[1:-1])
    depths = [*accumulate((char in "([{") - (char in ")]}") for char in text[1:-1])]
    if not depths or text[0] not in "([" or text[-1] not in ")]" or not min(depths) >= 0 == depths[-1]:
        return None  # `(1,2]` is one bracket; `(1,2)(3,4)` is not
    parts, _ = split(text[1:-1], _BETWEEN)
    if len(parts) < 2:
        inner_shape = _shape(text[1:-1]) if text[0] == "(" and text[-1] == ")" else None
        return inner_shape if inner_shape is not None and inner_shape.kind != "scalar" else None
    marks = (text[0], text[-1])
    endless = any(r"\infty" in p for p in parts)
    kind: Kind = "interval" if len(parts) == 2 and (marks != ("(", ")") or endless) else "tuple"
    return Shape(kind, text, tuple(map(_shape, parts)), marks)


def _as_items(parts: Iterable[str]) -> tuple[Shape, ...]:
    """Return the items of a list: three for `1, 2 and 3`, and two pairs for `p=5, q=2; p=7, q=2`."""
    items = tuple(map(_shape, parts))
    names = {tuple(part.items[0].text if part.kind == "relation" else "" for part in item.items) for item in items}
    if all(item.kind == "list" for item in items) and len(names) == 1 and "" not in min(names):
        return tuple(Shape("tuple", item.text, item.items, ("(", ")")) for item in items)
    return tuple(term for item in items for term in (item.items if item.kind == "list" else (item,)))


_PLUS_MINUS = re.compile(r"(\\(?:pm|mp)(?![A-Za-z])|\+ ?/ ?-)")


def _plus_minus(text: str) -> list[str]:
    r"""Expand ±: `1 \pm \sqrt2` is two numbers. Each ± has its own sign, unless the expression also has ∓."""
    pieces = _PLUS_MINUS.split(text)
    signs = pieces[1::2]
    if not 0 < len(signs) <= 4 or text.startswith(r"\{"):
        return []
    found = []
    for minus in product((0, 1), repeat=len(signs)):
        if r"\mp" not in signs or len({*minus}) == 1:
            pieces[1::2] = ["-+"[below == (sign == r"\mp")] for sign, below in zip(signs, minus, strict=True)]
            found.append("".join(pieces))
    return found


# ---- names, values and labels in relations


def is_inequality(relation: Shape) -> bool:
    return relation.kind == "relation" and set(relation.marks) <= set(MIRROR)


_NAME = re.compile(
    r"(?!(?:e|i|\\pi|\\infty|\\emptyset) ?$)(?:\\?[A-Za-z]+|\\(?:text|mathrm|angle) ?\{?[A-Za-z ]+\}?)"
    r"(?: ?_ ?(?:\{[^{}]*\}|\w))?'*(?: ?\^ ?\{ ?(?:-1|\(\d\)) ?\}(?= ?\())?(?: ?\([A-Za-z](?:, ?[A-Za-z])*\))?"
)


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text.strip()))


def is_closed(text: str) -> bool:
    """Return whether a text has no variables."""
    try:
        return is_constant(parse(text))
    except Unreadable:
        return bool(text) and not re.search("[A-Za-z]", text)


def named(relation: Shape) -> set[str]:
    """Return the sides of a relation that are names, including Greek letters."""
    return {i.text for i in relation.items if is_name(i.text)}


def assigned(answer: Shape) -> dict[str, Shape]:
    """Return the values of different names, as `q=5, p=2` and `(q,p)=(5,2)` state them; empty for other answers."""
    equations = (answer,) if answer.kind == "relation" else answer.items
    if {(e.kind, e.marks) for e in equations} != {("relation", ("=",))} or {*answer.marks} & {"or", "lor"}:
        return {}
    sides = [equation.items for equation in equations]
    if answer.kind == "relation":
        left, right = answer.items
        if not left.kind == right.kind == "tuple" or len(left.items) != len(right.items):
            return {}
        sides = list(zip(left.items, right.items, strict=True))
    values = {squeeze(name.text): value for name, value in sides if is_name(name.text)}
    return values if len(values) == len(sides) else {}


_SIGN = re.compile("[-+]")
_PLAIN = re.compile(rf"(?:[a-z]|{GREEK})(?:_.*)?")


def is_label(text: str) -> bool:
    r"""Return whether a text names a quantity: a ratio of names, a length, a function value or a limit.

    >>> [is_label(t) for t in ("V_1:V_2", "|AB|", r"\frac{NO}{BO}", r"\cos A", "|a-b|", "f'(1)", "P(X=1)")]
    [True, True, True, True, True, True, True]
    >>> [is_label(t) for t in (r"\vec a\cdot\vec b", r"\lim a_n", "x+z", "f(x+1)", "|x|+|y|", "2x")]
    [True, True, False, False, False, False]
    """
    if not text or is_closed(text):
        return False
    try:
        formula = parse(text)
    except Unreadable:
        return not prose_words(text) and len(split(text, _SIGN)[0]) == 1
    base = formula.args[0] if formula.op == "^" else formula
    operator = str(base.args[0]).startswith((r"\lim", r"\int"))
    if operator or base.op == "abs" or (formula.op == "/" and all(part.op == "name" for part in formula.args)):
        return True
    return not any(n.op == "name" and _PLAIN.fullmatch(n.args[0]) for n in nodes(base))


def bare_label(label: str) -> str:
    """Return a label without bars around two letters and without commands that do not change its meaning."""
    label = re.sub(r"\\(max|min)(?![A-Za-z])", r"\1", re.sub(r"\\Pr(?![A-Za-z])", "P", label))
    label = re.sub(
        r"\\(?:overline|overrightarrow|vec|mathbb|mathrm|text|operatorname|[lr]?vert)(?![A-Za-z])", "", label
    )
    sides = re.sub(r"(?<![A-Za-z])\|? ?\{? ?([A-Z]{2}) ?\}? ?\|?(?![A-Za-z])", r"\1", label)
    return squeeze(re.sub(r"[{} ]", "", sides))
