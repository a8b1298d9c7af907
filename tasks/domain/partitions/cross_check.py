r"""Cross check, independent of the grader: its own reading of LaTeX and its own arithmetic, without an algebra system.

The cross check evaluates both texts in complex floating point at fixed pseudo-random values of their variables, and
returns `same`, `different`, or `unknown`. The cross check shares no code with the grader, so that a mistake of either
appears as a dispute. Overflowing numbers, long texts and deep nesting are `unknown`, so the check always ends.
"""

from __future__ import annotations

import cmath
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

MAX_DEPTH = 40
_TOKEN = re.compile(
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])|\d+\.\d+|\.\d+|\d+|\\[A-Za-z]+|\\[{}|%]|[A-Za-z]|\*\*|[-+*/^_(){}\[\]"
    r"|!,=%]"
)
_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    r"\sin": cmath.sin,
    r"\cos": cmath.cos,
    r"\tan": cmath.tan,
    r"\ln": cmath.log,
    r"\exp": cmath.exp,
    r"\arctan": cmath.atan,
    r"\arcsin": cmath.asin,
    r"\arccos": cmath.acos,
    r"\cot": lambda z: 1 / cmath.tan(z),
    r"\sec": lambda z: 1 / cmath.cos(z),
    r"\csc": lambda z: 1 / cmath.sin(z),
}
_FRACTIONS = (r"\frac", r"\dfrac", r"\tfrac")
#: Opening bracket → (closing bracket, function of the value inside).
_BRACKETS: dict[str, tuple[str, Callable[[complex], complex]]] = {
    "(": (")", complex),
    "[": ("]", complex),
    "{": ("}", complex),
    "|": ("|", abs),
    r"\lfloor": (r"\rfloor", lambda z: math.floor(z.real)),
    r"\lceil": (r"\rceil", lambda z: math.ceil(z.real)),
}


class Unclear(Exception):
    """The reader does not support this text."""


class Reader:
    """A recursive-descent parser that evaluates one expression at one assignment of the variables."""

    def __init__(self, text: str, point: int) -> None:
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens).replace(" ", "") != text.replace(" ", "") or not self._tokens:
            raise Unclear
        self._at, self._point, self._depth = 0, point, 0

    def value(self) -> complex:
        result = self._sum()
        if self._peek() is not None or cmath.isnan(result) or cmath.isinf(result):
            raise Unclear
        return result

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, *wanted: str) -> bool:
        if self._peek() in wanted:
            self._at += 1
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise Unclear

    def _sum(self) -> complex:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unclear
        total = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self._at += 1
            total += self._product() if sign == "+" else -self._product()
        self._depth -= 1
        return total

    def _product(self) -> complex:
        result, divided = self._signed(), False
        while (token := self._peek()) is not None:
            if self._take("*", r"\cdot", r"\times"):
                result *= self._signed()
            elif self._take("/"):
                result, divided = result / self._signed(), True
            elif re.match(r"[\d.A-Za-z(]|\\(?:frac|dfrac|tfrac|sqrt|pi|binom|sin|cos|tan|ln|log|lfloor|lceil)$", token):
                if divided or (token[0].isdigit() and self._tokens[self._at - 1][0].isdigit()):
                    raise Unclear  # 1/2n and "3 4" mean different things to different people
                mixed = self._is_mixed(token)
                factor = self._power()
                result = result + math.copysign(1, result.real) * factor if mixed else result * factor
            else:
                break
        return result

    def _is_mixed(self, token: str) -> bool:
        rest = "".join(self._tokens[self._at : self._at + 7])
        whole = token in _FRACTIONS and self._tokens[self._at - 1].isdigit()
        return whole and bool(re.match(r"\\[dt]?frac(?:\{\d+\}\{\d+\}|\d\d)", rest))

    def _signed(self) -> complex:
        if self._take("-"):
            return -self._signed()
        self._take("+")
        return self._power()

    def _power(self) -> complex:
        base = self._postfix(self._atom())
        if self._take("^", "**"):
            if self._take(r"\circ"):
                return base
            if self._peek() == "{" and self._tokens[self._at + 1 : self._at + 2] == [r"\circ"]:
                self._at += 3
                return base
            exponent = self._signed() if self._peek() != "{" else self._group()
            if abs(exponent) > 1e4:
                raise Unclear
            return self._postfix(base**exponent)
        return base

    def _postfix(self, value: complex) -> complex:
        while True:
            if self._take("!"):
                if value.imag or value.real != int(value.real) or not 0 <= value.real <= 150:
                    raise Unclear
                value = complex(math.factorial(int(value.real)))
            elif self._take("%", r"\%"):
                value /= 100
            else:
                return value

    def _group(self) -> complex:
        if not self._take("{"):
            token = self._peek() or ""
            if re.fullmatch(r"\d{2,}", token):  # \frac12 reads digit by digit
                self._tokens[self._at : self._at + 1] = list(token)
            return self._atom()
        value = self._sum()
        self._need("}")
        return value

    def _between(self, closing: str) -> complex:
        value = self._sum()
        self._need(closing)
        return value

    def _atom(self) -> complex:
        token = self._peek()
        if token is None:
            raise Unclear
        self._at += 1
        if token[0].isdigit() or token[0] == ".":
            return complex(float(token.replace(",", "")))
        if token in _FRACTIONS:
            top = self._group()
            return top / self._group()
        if token == r"\binom":
            n, k = self._group().real, self._group().real
            return complex(math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)))
        if token == r"\sqrt":
            index = self._between("]") if self._take("[") else 2
            return self._group() ** (1 / index)
        if token in _BRACKETS:
            closing, function = _BRACKETS[token]
            return complex(function(self._between(closing)))
        if token == r"\log":
            base = self._group() if self._take("_") else 10
            return cmath.log(self._power()) / cmath.log(base)
        if token in _FUNCTIONS:
            if self._peek() == "^":
                raise Unclear
            degrees = r"\circ" in "".join(self._tokens[self._at :])
            return _FUNCTIONS[token](self._power() * (math.pi / 180 if degrees else 1))
        constants = {r"\pi": math.pi, "e": math.e, "i": 1j}
        return complex(constants[token]) if token in constants else self._variable(token)

    def _variable(self, token: str) -> complex:
        """Return a value that depends on the name only: real and above 1, so that roots and logarithms are defined."""
        if not re.fullmatch(r"[A-Za-z]|\\(?:alpha|beta|gamma|theta|lambda|phi|omega)", token):
            raise Unclear
        name = token
        if self._take("_"):
            opened = self._take("{")
            while (part := self._peek()) is not None and part != "}" and (opened or len(name) == len(token)):
                name += part
                self._at += 1
            if opened:
                self._need("}")
        digest = hashlib.sha256(f"{name}:{self._point}".encode()).digest()
        return complex(1.1 + int.from_bytes(digest[:4]) / 2**32 * 3)


Agreement = Literal["same", "different", "unknown"]
MAX_CHARS, POINTS = 400, 3
CLOSE, CLOSE_TO_DECIMAL = 1e-11, 1e-6
#: Texts with words, units, exponents like 1e5 or dots are no formulas.
_NOT_FORMULA = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{2,}|\d[eE][-+\d]|\.\.|\\(?:text|mathrm|mbox|overline|dots|ldots|pm|mp|infty)"
)
_IGNORED = re.compile(
    r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle|,|;|:|!|quad|qquad)(?![A-Za-z])\s*|\$|\\ |~|\s|\\[()\[\]]"
)
_PLAIN = str.maketrans(
    {"−": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "²": "^2", "³": "^3"}
    | {"π": r"\pi ", "√": r"\sqrt ", "°": r"^\circ"}
)


def cross_check(answer: str, gold: str) -> Agreement:
    r"""Compare an answer with a gold.

    >>> cross_check(r"\frac{n^2+n}{2}", "n(n+1)/2"), cross_check("7", "8")
    ('same', 'different')
    >>> cross_check("even", "odd"), cross_check("3, 1", "1,3")
    ('unknown', 'same')
    """
    if max(len(answer), len(gold)) > MAX_CHARS:
        return "unknown"
    if any(_NOT_FORMULA.search(text) for text in (answer, gold)) or _units(answer) != _units(gold):
        return "unknown"
    try:
        if _name(answer) and _name(gold) and _name(answer) != _name(gold):
            return "unknown"
        got, got_form = _values(answer)
        want, want_form = _values(gold)
    except (Unclear, OverflowError, ZeroDivisionError, ValueError, IndexError):
        return "unknown"
    if got_form != want_form and "()" in (got_form, want_form) and len(want) > 1 and len(got) > 1:
        return "unknown"
    if len(got) != len(want):
        return "different"
    rounded = ("." in answer) != ("." in gold) and not any(re.fullmatch(r"\s*-?\d+\s*", t) for t in (answer, gold))
    near = CLOSE_TO_DECIMAL if rounded else CLOSE
    if got_form == "()" == want_form:
        return "same" if all(_close(g, w, near) for g, w in zip(got, want, strict=True)) else "different"
    left = list(want)
    for value in got:
        hit = next((w for w in left if _close(value, w, near)), None)
        if hit is None:
            return "different"
        left.remove(hit)
    return "same"


def _units(text: str) -> tuple[bool, bool]:
    return "%" in text, "circ" in text or "°" in text


def _name(text: str) -> str:
    return re.sub(r"[\s$]", "", text.partition("=")[0]) if "=" in text else ""


def _close(one: Sequence[complex], other: Sequence[complex], near: float) -> bool:
    return all(abs(a - b) <= near * abs(b) + 1e-12 for a, b in zip(one, other, strict=True))


def _values(text: str) -> tuple[list[tuple[complex, ...]], str]:
    """Return (each value at every point, the form: `()` for one parenthesised tuple, else empty)."""
    text = text.translate(_PLAIN).strip()
    text = _IGNORED.sub(lambda m: " " if m[0].isspace() else "", text).strip().rstrip(".")
    form = ""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        text = text[2:-2]
    elif text[:1] == "(" and text[-1:] == ")" and "," in text and text.count("(") == 1:
        text, form = text[1:-1], "()"
    parts = _split(text)
    return [tuple(Reader(_right_side(p), point).value() for point in range(POINTS)) for p in parts], form


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        thousands = char == "," and re.match(r"\d{3}(?!\d)", text[i + 1 :]) and re.search(r"(?<!\d)\d{1,3}$", current)
        if char == "," and depth == 0 and not thousands:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


def _right_side(text: str) -> str:
    """Return the right side of an assignment. Errors: Unclear for equations and chains."""
    left, equals, right = text.partition("=")
    if not equals:
        return text
    if "=" in right or not re.fullmatch(r"\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?\s*", left):
        raise Unclear
    return right
