r"""What relations say: which intervals an inequality describes, what is a name and what has a value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from tasks.domain.grading.quantities import number
from tasks.domain.grading.shapes import Shape
from tasks.domain.grading.terms import GREEK, squeeze

MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_ORDER = set(MIRROR)


def intervals(found: Shape) -> list[Shape] | None:
    r"""Intervals (and finite sets) that an answer is the union of; null if it is no such thing.

    >>> from tasks.domain.grading.shapes import shape
    >>> [i.marks for i in intervals(shape(r"1 < x \le 2"))]
    [('(', ']')]
    """
    if found.kind == "interval":
        return [found]
    if found.kind == "tuple" and len(found.items) == 2 and found.marks == ("(", ")"):
        return [Shape("interval", found.text, found.items, found.marks)]
    if found.kind == "set":
        return [found]
    if (without := _without_points(found)) is not None:
        return without
    if found.kind in ("union", "choice"):
        if not _about_one_thing(found):
            return None
        parts = [intervals(item) for item in found.items]
        pieces = None if any(p is None for p in parts) else [i for p in parts if p is not None for i in p]
        return pieces if pieces is None or not {*found.marks} & {"and", "land"} else _overlap(pieces)
    if found.kind == "list" and len(found.items) == 2 and all(map(is_inequality, found.items)):
        rays = [piece for item in found.items for piece in intervals(item) or ()]
        return _overlap(rays) if _about_one_thing(found) else None
    if found.kind == "relation":
        return _solved(found)
    return None


def _about_one_thing(found: Shape) -> bool:
    """Have all relations of an answer a name in common?"""
    names = [named(item) for item in found.items if item.kind == "relation"]
    return not names or bool(set.intersection(*names))


def _without_points(found: Shape) -> list[Shape] | None:
    r"""`x>0, x\ne 1` and `(0,\infty)\setminus\{1\}`: one interval without some numbers; None for anything else."""
    if found.kind in ("list", "choice") and not re.search(r"\bor\b|vee|lor", found.text):
        holes = [i.items[1] for i in found.items if i.kind == "relation" and i.marks == (r"\ne",)]
        if found.items[0].kind == "relation" and found.items[1].marks == (r"\ne",):
            holes += [i for i in found.items if i.kind == "scalar"]  # `x \ne 1, 2`
        single = len(found.items) == len(holes) + 1 and found.items[0].marks != (r"\ne",) and _about_one_thing(found)
        whole = intervals(found.items[0]) if holes and single else None
    elif left_out := _LESS_POINTS.fullmatch(found.text):
        line = left_out["line"] is not None
        ends = (r"-\infty", r"\infty") if line else (left_out["low"], left_out["high"])
        marks = ("(", ")") if line else (left_out["open"], left_out["close"])
        whole = [Shape("interval", found.text, tuple(Shape("scalar", end) for end in ends), marks)]
        holes = [Shape("scalar", text.strip()) for text in left_out["points"].split(",")]
    else:
        return None
    return _split(whole[0], holes) if whole is not None and len(whole) == 1 else None


def _split(whole: Shape, holes: list[Shape]) -> list[Shape] | None:
    """An interval without some numbers inside it; None unless all of them are plain and lie between its ends."""
    values = [value for hole in holes if (value := number(hole.text)) is not None and not value.unit]
    if whole.kind != "interval" or not holes or len(values) < len(holes):
        return None
    inside = [hole for _, hole in sorted(zip((v.value for v in values), holes, strict=True), key=lambda pair: pair[0])]
    ends = [whole.items[0], *inside, whole.items[1]]
    if not all(_above(b, a) for a, b in pairwise(ends)):
        return None
    opening, closing = [whole.marks[0], *["("] * len(inside)], [*[")"] * len(inside), whole.marks[1]]
    marks = zip(opening, closing, strict=True)
    return [Shape("interval", "", pair, edges) for pair, edges in zip(pairwise(ends), marks, strict=True)]


def _above(one: Shape, other: Shape) -> bool:
    if one.text.replace("+", "") == _HIGHEST.text or other.text == _LOWEST.text:
        return True
    a, b = number(one.text), number(other.text)
    return a is not None and b is not None and a.value > b.value


def _overlap(pieces: list[Shape]) -> list[Shape] | None:
    """What `x > 1 and x < 2` leaves; null for rays that do not meet, where `and` enumerates, and for all else."""
    if len(pieces) != 2 or any(p.kind != "interval" for p in pieces):
        return None
    up, down = sorted(pieces, key=lambda p: p.items[0].text == _LOWEST.text)
    low, high = number(up.items[0].text), number(down.items[1].text)
    rays = up.items[1].text == _HIGHEST.text and down.items[0].text == _LOWEST.text
    if not rays or low is None or high is None or low.value >= high.value:
        return None
    return [Shape("interval", up.text, (up.items[0], down.items[1]), (up.marks[0], down.marks[1]))]


_LESS_POINTS = re.compile(
    r"(?:(?P<line>\\mathbb ?\{?R\}?)|(?P<open>[(\[])(?P<low>[^(),\[\]]*),(?P<high>[^(),\[\]]*)(?P<close>[)\]]))"
    r" ?(?:\\setminus|\\backslash|-) ?\\\{(?P<points>[^{}]*)\\\}"
)
_ABSOLUTE = re.compile(r"(?:\||\\lvert ?)[A-Za-z](?:\|| ?\\rvert)")
_LOWEST, _HIGHEST = Shape("scalar", r"-\infty"), Shape("scalar", r"\infty")
_LINE = Shape("interval", "", (_LOWEST, _HIGHEST), ("(", ")"))


def _solved(relation: Shape) -> list[Shape] | None:
    if relation.marks == (r"\in",):
        return intervals(relation.items[1])
    if relation.marks == ("=",) and is_name(relation.items[0].text):
        return [Shape("set", relation.text, (relation.items[1],))]
    if relation.marks == (r"\ne",) and is_name(relation.items[0].text):
        return _split(_LINE, [relation.items[1]])
    if not is_inequality(relation):
        return None
    items, marks = list(relation.items), list(relation.marks)
    if set(marks) <= {">", r"\ge"}:
        items, marks = items[::-1], [MIRROR[m] for m in marks[::-1]]
    if not set(marks) <= {"<", r"\le"}:
        return None
    low, high = _LOWEST, _HIGHEST
    edges = ("(", ")") if marks[0] == "<" else ("[", "]")
    if len(items) == 2 and _ABSOLUTE.fullmatch(items[0].text):
        return [Shape("interval", relation.text, (_opposite(items[1]), items[1]), edges)]
    if len(items) == 2 and _ABSOLUTE.fullmatch(items[1].text):
        return [
            Shape("interval", relation.text, (low, _opposite(items[0])), ("(", edges[1])),
            Shape("interval", relation.text, (items[0], high), (edges[0], ")")),
        ]
    if len(items) == 3 and is_name(items[1].text):
        edges = ("(" if marks[0] == "<" else "[", ")" if marks[1] == "<" else "]")
        return [Shape("interval", relation.text, (items[0], items[2]), edges)]
    about = next((i for i in relation.items if is_name(i.text)), None)  # of two letters the one written first
    if len(items) == 2 and items[0] is about:
        return [Shape("interval", relation.text, (low, items[1]), ("(", ")" if marks[0] == "<" else "]"))]
    if len(items) == 2 and items[1] is about:
        return [Shape("interval", relation.text, (items[0], high), ("(" if marks[0] == "<" else "[", ")"))]
    return None


def _opposite(bound: Shape) -> Shape:
    return Shape("scalar", f"-{bound.text}" if number(bound.text) else f"-({bound.text})")


def is_inequality(relation: Shape) -> bool:
    return relation.kind == "relation" and set(relation.marks) <= _ORDER


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
_INDEX = r"(?: ?_ ?(?:\{[^{}]*\}|\w))?'*"
_HEAD = r"(?:\\(?:mathbb|mathrm|text|operatorname) ?\{[A-Za-z ]+\}|\\?[A-Za-z]+)"
_APPLIED = re.compile(rf"(?<![A-Za-z\\]){_HEAD}{_INDEX}(?: ?\^ ?(?:\{{[^{{}}]*\}}|\d))?'* ?[(\[]([^()\[\]]+)[)\]]")
_COMPOSED = re.compile(r"\( ?[A-Za-z] ?\\circ ?[A-Za-z] ?\)(?= ?\()")
#: In brackets behind a name these say which event, set or points are meant.
_EVENT = re.compile(r"[<>=|]|\\(?:le|ge|ne|in|mid|cap|cup|angle|triangle|overline|vec|mathbb)(?![A-Za-z])|^[A-Z' ,]+$")
_QUANTITIES = re.compile(
    rf"\\(?:overline|overrightarrow|overleftrightarrow|widehat|vec|bar|hat|tilde|dot) ?(?:\{{ ?[A-Za-z]+{_INDEX} ?\}}"
    rf"|[A-Za-z](?![A-Za-z])){_INDEX}"
    rf"|\\(?:angle|triangle) ?\{{?[A-Z](?: ?[A-Z]{_INDEX})*\}}?{_INDEX}"
    rf"|\\# ?\{{?[A-Z]\}}?|(?<![A-Za-z\\])[A-Z]{{2,4}}{_INDEX}(?![A-Za-z(])|\[[A-Z]{{3,}}\]"
)
_SIZE = re.compile(r"(?:\||\\[lr]?[vV]ert(?![A-Za-z])|\\\|)")
_OF_ANGLE = re.compile(
    r"\\(?:sin|cos|tan|cot|sec|csc)(?: ?\^ ?\{? ?2 ?\}?)? ?\(? ?(?:\\angle ?)?[A-Z]{1,3}(?![A-Za-z]) ?\)?"
)
_OPERATOR = re.compile(
    r"(?:\\(?:lim|limsup|liminf|max|min|sup|inf|sum|prod|int|gcd|deg|det|dim|arg|Pr)(?![A-Za-z])"
    r"|\\(?:operatorname|mathrm|text) ?\{ ?(?:lim|max|min|sup|inf|gcd|lcm|deg|det|dim|rank|tr|Re|Im) ?\}).+",
    re.S,
)
_RATIO_PART = rf"(?:\\?[A-Za-z]\w*|\\(?:text|mathrm) ?\{{?[A-Za-z ]+\}}?){_INDEX}"
_RATIO = re.compile(
    rf"{_RATIO_PART}(?: ?[:/] ?{_RATIO_PART})+|\\frac ?\{{ ?{_RATIO_PART} ?\}} ?\{{ ?{_RATIO_PART} ?\}}"
)
_EXTREME = re.compile(r"_\\?(?:max|min)$")
_IN_WORDS = re.compile(r"\\(?:text|mathrm) ?\{[A-Za-z ]{3,60}\} ?(?:\\triangle ?)?[A-Z]{0,4}")
_DOT_PRODUCT = re.compile(r"[A-Za-z] ?\\(?:cdot|times) ?[A-Za-z]")


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
    if _RATIO.fullmatch(text) or _IN_WORDS.fullmatch(text) or _DOT_PRODUCT.fullmatch(text):
        return True
    if _OPERATOR.fullmatch(text):
        return not re.search(r"[-+]", _inside_out(text))
    bars = _SIZE.split(text)
    if len(bars) == 3 and bars[1].strip() and not bars[0].strip() and bars[2].strip() in ("", "^2", "^{2}"):
        return True
    return is_closed(_values_named(text))


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


def _values_named(text: str) -> str:
    """With 1 for every value that is named: `f(f(2))+AB` as `1+1`."""
    text = _QUANTITIES.sub("1", _OF_ANGLE.sub("1", _sizes(_COMPOSED.sub("f", text))))
    while (shorter := _APPLIED.sub(_value, text)) != text:
        text = shorter
    return text


def _sizes(text: str) -> str:
    r"""With 1 for every length between bars: `|AB|`, `|\vec a|`."""
    return re.sub(r"\|([^|]*)\|", lambda bars: "1" if is_closed(_QUANTITIES.sub("1", bars[1])) else bars[0], text)


def _value(applied: re.Match[str]) -> str:
    """1 for a function of numbers or the probability of an event, the text itself for a function of variables."""
    return "1" if is_closed(applied[1]) or _EVENT.search(applied[1]) else applied[0]


def _inside_out(text: str) -> str:
    """What stands outside all brackets."""
    while (shorter := re.sub(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", "", text)) != text:
        text = shorter
    return text
