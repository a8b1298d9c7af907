r"""The outer form of an answer: scalar, list, set, tuple, interval, union, relation. Terms stay text.

Read from text alone so that what a computer algebra system loses (order, multiplicity, brackets, which
side of an equation is true) is never handed to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Literal

from tasks.domain.grading.compound_quantities import compound_quantity
from tasks.domain.grading.latex_normalisation import matching, normalise
from tasks.domain.grading.layouts import matrix_rows
from tasks.domain.grading.number_words import number_in_words
from tasks.domain.grading.permutations import permuted
from tasks.domain.grading.quantities import number
from tasks.domain.grading.splitting import one_bracket, split_command, split_top, split_words

Kind = Literal["scalar", "list", "choice", "set", "tuple", "interval", "union", "relation", "matrix"]
_RELATION = re.compile(r"\\(?:ne|le|ge|approx|in|equiv|sim|simeq)(?![A-Za-z])|<=|>=|!=|==|=|<|>")
_CANONICAL = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", "==": "=", r"\simeq": r"\approx", r"\sim": r"\approx"}
_ALL_REALS = re.compile(r"(?:\\text ?\{)? ?(?:all |the )?(?:set of (?:all )?)?reals?(?: numbers?)?(?: x)? ?\}?", re.I)
_POINTS = re.compile(r"^\{(.*)\}$")
#: The numbers above zero, or below.
_HALF_LINE = re.compile(r"\\mathbb ?\{?R\}? ?(?:\^ ?\{? ?([-+]) ?\}?|_ ?\{ ?(<|>|\\[lg]e) ?0 ?\})")
_RAYS = str.maketrans("-+", "<>")
_NOTHING = re.compile(
    r"(?:\\text ?\{)? ?(?:there (?:is|are) )?(?:no|the empty set|empty set)(?: such)?(?: (?:real|integer|positive))?"
    r"(?: (?:solutions?|values?|roots?|integers?|numbers?))?(?: exists?)? ?\.?\}?",
    re.I,
)
_BUILDER = re.compile(r"\\\{ ?[A-Za-z](?: ?\\in ?\\mathbb ?\{?R\}?)? ?(?::|\||\\mid) ?(.*?) ?\\\}")


@dataclass(frozen=True, slots=True)
class Shape:
    """text: normalised source. items: parts, in order; rows of a matrix. marks: brackets or signs."""

    kind: Kind
    text: str
    items: tuple[Shape, ...] = ()
    marks: tuple[str, ...] = ()


def shape(text: str) -> Shape:
    r"""The form of an answer in any notation.

    >>> shape(r"\{1, 2\}").kind, shape("(1,2)").kind, shape("[1,2)").kind, shape("2 or 3").kind, shape("x=3").kind
    ('set', 'tuple', 'interval', 'choice', 'relation')
    """
    return _shape(normalise(permuted(text) or text))


def _shape(text: str) -> Shape:
    text = text.strip()
    if number(text) is not None or compound_quantity(text) is not None:
        return Shape("scalar", text)
    if rows := matrix_rows(text):
        parts = [Shape("tuple", " & ".join(row), tuple(map(_shape, row))) for row in rows]
        return Shape("matrix", text, tuple(parts))
    if text.startswith(r"\begin{") and text.count(r"\begin{") == 1:
        return Shape("scalar", text)
    if value := _number_in_words(text):
        return Shape("scalar", value)
    if both := _plus_minus(text):
        return Shape("list", text, tuple(_shape(t) for t in both))
    if text in (r"\mathbb{R}", r"\R", r"\mathbb R") or _ALL_REALS.fullmatch(text):
        return Shape("interval", text, (_shape(r"-\infty"), _shape(r"\infty")), ("(", ")"))
    if half := _HALF_LINE.fullmatch(text):
        return _shape(f"x{half[2] or half[1].translate(_RAYS)}0")
    if _NOTHING.fullmatch(text):
        return Shape("set", text, ())
    if builder := _BUILDER.fullmatch(text):
        return _shape(builder[1])
    if text.startswith("=") and not text.startswith("=="):
        return _shape(text[1:])
    chosen = split_words(text)
    if len(chosen) > 1:
        items = tuple(_shape(t) for t in chosen)
        return Shape("choice", text, _as_tuples(items) if _same_names(items) else _flatten(items))
    for separators in (";", ","):
        parts = [p for p in split_top(text, separators) if p]
        if len(parts) > 1:
            items = tuple(_shape(p) for p in _share_name(parts))
            return Shape("list", text, _as_tuples(items) if separators == ";" else _flatten(items))
    unions, signs = split_command(text, r"\cup"), _top_relations(text)
    if len(unions) > 1 and not (signs and signs[0][2] == "=" and r"\cup" in text[: signs[0][0]]):
        return Shape("union", text, tuple(_shape(_POINTS.sub(r"\{\1\}", u)) for u in unions))
    if signs:
        return _relation(text, signs)
    return _bracketed(text) or Shape("scalar", text)


def _number_in_words(text: str) -> str | None:
    r"""`\text{four}` as 4."""
    words = re.sub(r"^\\(?:text|mbox|textrm|mathrm) ?\{(.*)\}$", r"\1", text)
    value = number_in_words(words) if words[:1].isalpha() else None
    return None if value is None else str(value)


def _relation(text: str, signs: list[tuple[int, int, str]]) -> Shape:
    ends = [0, *(end for _, end, _ in signs)]
    starts = [*(start for start, _, _ in signs), len(text)]
    parts = tuple(_shape(text[a:b]) for a, b in zip(ends, starts, strict=True))
    marks = tuple(_CANONICAL.get(sign, sign) for *_, sign in signs)
    return Shape("relation", text, parts, marks)


def _bracketed(text: str) -> Shape | None:
    if text.startswith(r"\{") and text.endswith(r"\}") and text.count(r"\{") == 1:
        inner = text[2:-2].strip()
        return Shape("set", text, _flatten(tuple(_shape(p) for p in split_top(inner, ",;"))) if inner else ())
    if text in (r"\emptyset", r"\{\}"):
        return Shape("set", text, ())
    if text.startswith("{") and matching(text, 0) == len(text) - 1:
        inner = split_top(text[1:-1], ",")
        return Shape("set", text, tuple(_shape(p) for p in inner)) if len(inner) > 1 else _shape(text[1:-1])
    if text.startswith(r"\langle") and text.endswith(r"\rangle"):
        return Shape("tuple", text, tuple(_shape(p) for p in split_top(text[7:-7], ",")))
    if len(text) < 3 or text[0] not in "([]" or text[-1] not in ")][":
        return None
    if not one_bracket(text):
        return None
    parts = split_top(text[1:-1], ",;")
    if len(parts) < 2:
        inner = _shape(text[1:-1]) if text[0] == "(" and text[-1] == ")" else None
        return inner if inner is not None and inner.kind != "scalar" else None
    marks = ({"]": "("}.get(text[0], text[0]), {"[": ")"}.get(text[-1], text[-1]))
    endless = any(r"\infty" in p for p in parts)
    if len(parts) == 2 and (marks != ("(", ")") or endless):
        return Shape("interval", text, tuple(_shape(p) for p in parts), marks)
    return Shape("tuple", text, tuple(_shape(p) for p in parts), marks)


def _flatten(items: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """`1, 2 and 3` is one list of three."""
    return tuple(term for item in items for term in (item.items if item.kind == "list" else (item,)))


def _as_tuples(items: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """`p=5, q=2; p=7, q=2` is two pairs; other lists between semicolons are one list."""
    named = all(i.kind == "list" and all(part.kind == "relation" for part in i.items) for i in items)
    return tuple(Shape("tuple", i.text, i.items, ("(", ")")) for i in items) if named else _flatten(items)


def _same_names(items: tuple[Shape, ...]) -> bool:
    """`a=1, b=2 or a=2, b=1`: does every part give values to the same names?"""
    return len({tuple(part.items[0].text if part.items else "" for part in item.items) for item in items}) == 1


def _top_relations(text: str) -> list[tuple[int, int, str]]:
    found, depth, i = [], 0, 0
    while i < len(text):
        if depth == 0 and (match := _RELATION.match(text, i)):
            if match.group() == "!=" and i and (text[i - 1].isdigit() or text[i - 1] == ")"):
                i += 1  # 7!=5040 is about a factorial
                continue
            found.append((i, match.end(), match.group()))
            i = match.end()
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        i += 1
    return found


def _share_name(parts: list[str]) -> list[str]:
    r"""`x=1,2,3` names x once for all: every part gets its value alone."""
    head = re.fullmatch(r"([A-Za-z](?:_\{?\w+\}?)?)\s*(=|\\in)\s*(.+)", parts[0])
    if head and not any(_top_relations(p) for p in parts[1:]) and not head[3].startswith((r"\{", "{")):
        return [head[3], *parts[1:]]
    return parts


_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|\+ ?/ ?-")


def _plus_minus(text: str) -> tuple[str, ...] | None:
    r"""`1 \pm \sqrt2` is two numbers; inside a tuple every ± is free of the others, unless ∓ ties them."""
    signs = list(_PLUS_MINUS.finditer(text))
    if (
        not signs
        or len(signs) > 4
        or text.startswith(r"\{")
        or len([p for p in split_top(text, ",;") if p]) > 1
        or len(split_words(text)) > 1
    ):
        return None
    tied = any(m.group() == r"\mp" for m in signs) or text[0] not in "([" or not one_bracket(text)
    choices = [(1,) * len(signs), (-1,) * len(signs)] if tied else list(product((1, -1), repeat=len(signs)))
    return tuple(_signed(text, signs, choice) for choice in choices)


def _signed(text: str, signs: list[re.Match[str]], choice: tuple[int, ...]) -> str:
    out, end = [], 0
    for match, sign in zip(signs, choice, strict=True):
        out += [text[end : match.start()], "+" if sign * (-1 if match.group() == r"\mp" else 1) > 0 else "-"]
        end = match.end()
    return re.sub(r"(^|[=<>({,\[])\s*\+\s*", r"\1", "".join([*out, text[end:]])).strip()
