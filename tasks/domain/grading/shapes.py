r"""The outer form of an answer: scalar, list, set, tuple, interval, union, relation or matrix, with texts as parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import Literal

from tasks.domain.grading.formulas import GREEK, is_constant, names_in, nodes, number, parsed
from tasks.domain.grading.texts import IMPLIES, closing, normalise, split

#: The signs of relations in their normal form.
CANONICAL = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne"}
#: Each sign of a relation with the sign that has the same meaning when the sides are exchanged.
MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


def squeeze(text: str) -> str:
    """Return a text without insignificant spaces."""
    return re.sub(r"(?<![A-Za-z\d]) | (?![A-Za-z\d])|(?<=\d) (?=[A-Za-z])|(?<=[A-Za-z]) (?=\d)", "", text)


#: What may follow: no factor, power or factorial, and no further part of an exponent. `\pi n^2` counts no periods.
_ENDS = r"(?! ?(?:(?!i(?![A-Za-z]))[A-Za-z]|[\^!_(]))"
#: An integer that counts periods.
PERIODS = re.compile(rf"\\pi ?([k-n]){_ENDS}|(?<![A-Za-z\\^_])([k-n]) ?\\pi(?![A-Za-z]){_ENDS}")
#: Letters whose names have no meaning: the integer that counts periods, and the argument of a function.
_FREE = (PERIODS, re.compile(r"(?<![A-Za-z\\])[A-Za-z]+ ?\(([a-z])\)(?= ?=)"))


def with_letters_of(text: str, gold: str) -> str:
    r"""Return the text with the gold's letter for the integer that counts periods and for the argument of a function.
    The text stays unchanged unless both texts have one such letter, and neither also uses the other's letter.

    >>> with_letters_of(r"\frac{\pi}{6}+n\pi", r"\frac{\pi}{6}+k\pi"), with_letters_of("2^n", r"2^k")
    ('\\frac{\\pi}{6}+k\\pi', '2^n')
    """
    for pattern in _FREE:
        mine, wanted = ({found[found.lastindex or 0] for found in pattern.finditer(t)} for t in (text, gold))
        if len(mine) == len(wanted) == 1:
            (old,), (new,) = mine, wanted
            if new not in re.sub(r"\\[A-Za-z]+", "", text) and old not in re.sub(r"\\[A-Za-z]+", "", gold):
                kept = rf"\\[A-Za-z]+|[A-Za-z]{{3,}}|({old})"
                text = re.sub(kept, lambda found, new=new: new if found[1] else found[0], text)
    return text


Kind = Literal["scalar", "list", "choice", "steps", "set", "tuple", "interval", "union", "relation", "matrix"]
#: Signs of relations. The sign in `7!=5040` is `=`, because the exclamation mark is a factorial.
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
    (
        r"(?:\\text ?\{)? ?(?:there (?:is|are) )?no(?: such)?(?: (?:real|integer|positive))?"
        r" (?:solutions?|values?|roots?|integers?|numbers?)(?: exists?)? ?\.?\}?"
        r"|(?:\\text ?\{)? ?(?:(?:the )?(?:(?:solution )?set is )?(?:the )?(?:empty|null)(?: set)?) ?\}?",
        r"\\emptyset",
    ),
    (r"\\\{ ?[A-Za-z](?: ?\\in ?\\mathbb ?\{?R\}?)? ?(?::|\||\\mid) ?(.*?) ?\\\}", r"\1"),
    (r"=(?!=)(.*)", r"\1"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of an answer.

    - text: the normalised source.
    - items: the parts, in order; for a matrix its rows.
    - marks: brackets, signs, or the word that joins a choice.
    - condition: the range that the answer states for its letters, if any. A function's argument is named as such.
    """

    kind: Kind
    text: str
    items: tuple[Shape, ...] = ()
    marks: tuple[str, ...] = ()
    condition: str = ""


def shape(text: str) -> Shape:
    r"""Return the form of an answer, whatever its notation.

    >>> shape(r"\{1, 2\}").kind, shape("(1,2)").kind, shape("[1,2)").kind, shape("2 or 3").kind, shape("x=3").kind
    ('set', 'tuple', 'interval', 'choice', 'relation')
    """
    text = normalise(text)
    if (found := _CONDITION.search(text)) and (main := text[: found.start()].strip(" ,;")):
        name = found["all"] or found["name"]
        letters = main if "\\" in name else re.sub(r"\\[A-Za-z]+", " ", main)
        whole = found["sign"] is None or name in "ijklmn"
        if name in letters and whole and not re.search(r"[<>]|\\(?:le|ge|ne|in)(?![A-Za-z])", main):
            domain = found["set"] or (f"{found['sign']}{found['low']}" if found["name"] else "")
            if found["set"] and re.match(rf"[A-Za-z] ?\((?![i-n]){re.escape(name)}\) ?=", main):
                domain = f"argument: {domain}"
            return replace(_shape(main), condition=squeeze(domain))
    return _shape(text)


_LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|theta|lambda|mu))(?:_\{?\w\}?)?"
#: A condition behind a formula: `, k \in \mathbb{Z}`, `\forall x`, `(n \ge 1)`.
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
    if text[:1] == "]" and (interval := _bracketed(text)):
        return interval
    steps, _ = split(text, IMPLIES)
    if len(steps) > 1:
        return Shape("steps", text, (*_as_items(steps[:-1]), _shape(steps[-1])))
    for separator in (_JOINED, _SEMICOLON, _COMMA):
        parts, joins = split(text, separator)
        if len(parts := [part for p in parts if (part := p.strip(" ,;"))]) > 1:
            marks = tuple(_JOINS.get(join[1:], "or" if "or" in join.lower() else "and") for join in joins)
            chosen = separator is _JOINED
            return Shape("choice" if chosen else "list", text, _as_items(parts), marks if chosen else ())
    if both := _plus_minus(text):
        return Shape("list", text, tuple(map(_shape, both)))
    unions, _ = split(text, _CUP)
    sides, signs = split(text, _RELATION)
    if len(unions) > 1 and not (signs[:1] == ["="] and r"\cup" in sides[0]):
        return Shape("union", text, tuple(_shape(_POINTS.sub(r"\{\1\}", u)) for u in unions))
    if signs:
        return Shape("relation", text, tuple(map(_shape, sides)), tuple(CANONICAL.get(sign, sign) for sign in signs))
    return _bracketed(text) or Shape("scalar", text)


def _matrix(text: str) -> Shape | None:
    """Read a vector or a matrix, row by row. Return None for a determinant, which is a number."""
    found = _MATRIX.fullmatch(text[1:-1].strip() if text[:1] + text[-1:] in ("()", "[]") else text)
    rows = [[c.strip() for c in re.split(r"(?<!\\)&", r)] for r in found["inner"].split(r"\\")] if found else []
    rows = [row for row in rows if row != [""]]
    cells = tuple(Shape("tuple", " & ".join(row), tuple(map(_shape, row))) for row in rows)
    return Shape("matrix", text, cells) if len({*map(len, rows)}) == 1 else None


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
    if not depths or text[0] not in "([]" or text[-1] not in ")][" or not min(depths) >= 0 == depths[-1]:
        return None  # `(1,2]` is one pair of brackets; `(1,2)(3,4)` is two
    parts, _ = split(text[1:-1], _BETWEEN)
    if len(parts) < 2:
        inner_shape = _shape(text[1:-1]) if text[0] == "(" and text[-1] == ")" else None
        return inner_shape if inner_shape is not None and inner_shape.kind != "scalar" else None
    marks = ({"]": "("}.get(text[0], text[0]), {"[": ")"}.get(text[-1], text[-1]))
    endless = any(r"\infty" in p for p in parts)
    kind: Kind = "interval" if len(parts) == 2 and (marks != ("(", ")") or endless) else "tuple"
    return Shape(kind, text, tuple(map(_shape, parts)), marks)


def _as_items(parts: Iterable[str]) -> tuple[Shape, ...]:
    """Return the items of a list. The list `1, 2 and 3` has three items, and `p=5, q=2; p=7, q=2` has two pairs."""
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


def as_tuple(found: Shape, flat: bool) -> Shape:
    """Return a matrix as the tuple of its rows, and (if `flat`) a vector as the tuple of its entries. `[1,2]` and
    `[[1,2],[3,4]]` become tuples."""
    items = found.items
    if found.kind == "matrix":
        if flat and 1 in (len(items), len(items[0].items)):
            items = tuple(entry for row in items for entry in row.items)
    elif found.kind == "tuple" or (found.kind == "interval" and found.marks == ("[", "]")):
        items = tuple(as_tuple(item, flat) for item in items)
    else:
        return found
    return Shape("tuple", found.text, items)


# ---- names, values and labels in relations


def is_inequality(relation: Shape) -> bool:
    return relation.kind == "relation" and set(relation.marks) <= set(MIRROR)


_NAME = re.compile(
    r"(?!(?:e|i|\\pi|\\infty|\\emptyset) ?$)(?:\\?[A-Za-z]+|\\(?:text|mathrm|angle) ?\{?\\?[A-Za-z ]+\}?)"
    r"(?: ?_ ?(?:\{[^{}]*\}|\w))?'*(?: ?\^ ?\{ ?(?:-1|\(\d\)) ?\}(?= ?\())?(?: ?\([A-Za-z](?:, ?[A-Za-z])*\))?"
)


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text.strip()))


def is_closed(text: str) -> bool:
    """Return whether a text has no variables."""
    if (formula := parsed(text)) is not None:
        return is_constant(formula)
    return bool(text) and not re.search("[A-Za-z]", text)


def named(relation: Shape) -> set[str]:
    """Return the sides of a relation that are names; Greek letters are names too."""
    return {i.text for i in relation.items if is_name(i.text)}


def in_order_of(names: Sequence[Shape] | None, answer: Shape) -> Shape:
    r"""Return `(q,p)=(5,2)` and `q=5, p=2` as the tuple of values in the order of `names`. Keep other texts.
    If `names` is None, single letters are in alphabetical order, and other names (`r=3, \theta=0`) as written."""
    equations = (answer,) if answer.kind == "relation" else answer.items
    if {(e.kind, e.marks) for e in equations} != {("relation", ("=",))} or {*answer.marks} & {"or", "lor"}:
        return answer
    sides = [equation.items for equation in equations]
    if answer.kind == "relation":
        left, right = answer.items
        if not left.kind == "tuple" == right.kind or len(left.items) != len(right.items):
            return answer
        sides = list(zip(left.items, right.items, strict=True))
    values = {squeeze(side[0].text): side[1] for side in sides}
    letters = all(re.fullmatch("[A-Za-z]", name) for name in values)
    wanted = [squeeze(name.text) for name in names] if names else sorted(values) if letters else [*values]
    if sorted(wanted) != sorted(values) or len(sides) != len(values):
        return answer
    ordered = tuple(values[name] for name in wanted)
    return Shape("tuple", f"({','.join(value.text for value in ordered)})", ordered, ("(", ")"))


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
    if (formula := parsed(text)) is None:
        return len(split(text, _SIGN)[0]) == 1
    base = formula.args[0] if formula.op == "^" else formula
    if base.op == "abs" or (formula.op == "/" and all(part.op == "name" for part in formula.args)):
        return True
    return not any(n.op == "name" and _PLAIN.fullmatch(n.args[0]) for n in nodes(base))


#: Names of quantities that the parser does not read: a probability, an area, a maximum, a ratio, the size of a set.
_QUANTITY = re.compile(
    r"(?:\\?[A-Za-z]+|\\mathbb\{E\}) ?(?:\([^()]*\)|\[[A-Z]\])|\[[A-Z]+\]|\\(?:max|min|sup|inf|lim)(?![A-Za-z])[^=+-]*"
    r"|[A-Z][\w{}]*(?: ?: ?[A-Z][\w{}]*)+|\|[A-Z](?: ?\\c[au]p ?[A-Z])+\|"
)


def names_value(text: str) -> bool:
    r"""Return whether `text = 5` gives the value of a quantity with that name, and is no equation for a letter in it.
    Contests ask for sums of different letters, such as m+n.

    >>> [names_value(t) for t in ("x", "f(2)", "|AB|", r"\angle A", "NO:BO", r"\frac{AB}{CD}", "P(X=1)", "m+n")]
    [True, True, True, True, True, True, True, True]
    >>> [names_value(t) for t in ("2x", "x+x", "m-n", "x^2", "|x|", "xy", r"\sin A", "1/A", "f(x+1)")]
    [False, False, False, False, False, False, False, False, False]
    """
    if is_name(text):
        return not re.fullmatch("[a-z]{2,3}", text)
    if (formula := parsed(text)) is None:
        return bool(_QUANTITY.fullmatch(text))
    if formula.op == "+" and all(n.op == "name" and re.fullmatch("[a-z]", n.args[0]) for n in formula.args):
        return len(set(formula.args)) == len(formula.args)
    inner = formula.args[0] if formula.op == "abs" else formula
    named = formula.op == "call" or all(n.op in ("name", "*", "/") for n in nodes(inner))
    return named and not any(_PLAIN.fullmatch(name) for name in names_in(inner))


def bare_label(label: str) -> str:
    """Return a label without the bars around two letters, and without commands that do not change its meaning."""
    label = re.sub(r"\\(max|min)(?![A-Za-z])", r"\1", re.sub(r"\\Pr(?![A-Za-z])", "P", label))
    label = re.sub(
        r"\\(?:overline|overrightarrow|vec|mathbb|mathrm|text|operatorname|[lr]?vert)(?![A-Za-z])", "", label
    )
    sides = re.sub(r"(?<![A-Za-z])\|? ?\{? ?([A-Z]{2}) ?\}? ?\|?(?![A-Za-z])", r"\1", label)
    return squeeze(re.sub(r"[{} ]", "", sides))
