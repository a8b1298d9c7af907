r"""Equality of two terms by math-verify, fenced where it is known to be too kind. May hang: workers only."""

from __future__ import annotations

import logging
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tasks.domain.grading.quantities import split_unit
from tasks.domain.grading.terms import NeedsSymbolic, exact_same
from tasks.domain.grading.words import prose_words

_COMMAND = re.compile(r"\\[A-Za-z]+")
_TEXTUAL = re.compile(r"\\(?:text|mathrm|textrm|textbf|mbox|operatorname|mathbf) ?\{([^{}]*)\}")


_GREEK = re.compile(
    r"\\(?:[A-Z][a-z]+|alpha|beta|gamma|delta|epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi"
    r"|psi|omega)\b"
)


def letters(text: str) -> frozenset[str]:
    """Letters that stand for variables, case kept."""
    bare = _COMMAND.sub(" ", _TEXTUAL.sub(" ", text))
    return frozenset([*re.findall(r"[A-Za-z]", bare), *_GREEK.findall(text)]) - {"e", "i"}


def plain_words(text: str) -> str | None:
    """A worded answer in normal form, or null if the answer is not words."""
    words = re.sub(r"\s+", " ", _TEXTUAL.sub(r"\1", text)).strip(" .()").lower()
    wordy = "\\" in text or prose_words(words)
    return words if re.fullmatch(r"[a-z][a-z' -]*", words) and wordy else None


def equivalent(prediction: str, gold: str) -> bool:
    """Is `prediction` the same value as `gold`? Both normalised terms, units allowed."""
    one, other = plain_words(prediction), plain_words(gold)
    if one is not None and one == other:
        return True
    (a, unit_a), (b, unit_b) = _unit(prediction), _unit(gold)
    if unit_a and unit_b and unit_a != unit_b and "?" not in (unit_a, unit_b):
        return False
    if (unit_a == "°") != (unit_b == "°"):
        turned = (rf"({a})\cdot\frac{{\pi}}{{180}}", b) if unit_a == "°" else (a, rf"({b})\cdot\frac{{\pi}}{{180}}")
        return _equal(*turned) or _equal(a, b)
    if (unit_a == "%") != (unit_b == "%"):
        return _equal(*((rf"\frac{{{a}}}{{100}}", b) if unit_a == "%" else (a, rf"\frac{{{b}}}{{100}}")))
    return _equal(a, b)


def _unit(text: str) -> tuple[str, str | None]:
    r"""Degrees inside a function are a factor, not a unit: `\sin 30^{\circ}`."""
    if re.search(r"\\(?:int|sum|prod)(?![A-Za-z])", text):
        return text, None
    if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])", text):
        return re.sub(r"(\d+(?:\.\d+)?) ?\^\{\\circ\}", r"(\\frac{\1\\pi}{180})", text), None
    return split_unit(text)


def _equal(prediction: str, gold: str) -> bool:
    try:
        if exact_same(prediction, gold):
            return True
    except NeedsSymbolic:
        pass
    else:
        return False
    if any(bool(mark.search(prediction)) != bool(mark.search(gold)) for mark in _LOST):
        return False
    if ":" in prediction + gold:
        parts, others = prediction.split(":"), gold.split(":")
        return len(parts) == len(others) and all(map(_equal, parts, others))
    prediction, gold = _readable(prediction), _readable(gold)
    theirs, ours = letters(prediction), letters(gold)
    if not (theirs <= ours or ours <= theirs):
        return False
    wanted, got = _parsed(_one_case(gold)), _parsed(_one_case(prediction))
    if not wanted or not got:
        return False
    if theirs != ours:
        return _cancels(wanted[0], got[0])
    from math_verify import verify

    if verify(wanted, got, float_rounding=6, timeout_seconds=0):
        return True
    return (_is_lone(wanted[0]) or _is_lone(got[0]) or _imaginary(gold + prediction)) and _cancels(wanted[0], got[0])


#: What the parser would drop without a word: minutes of arc, an index on a number, three dots.
_LOST = (re.compile(r"\d ?'"), re.compile(r"(?<![_\d])\d+ ?_"), re.compile(r"\\[lc]?dots"))
_DECIMAL_POWER = re.compile(r"\^ ?\{ ?(-?)(\d*\.\d+) ?\}")
_PRIMED = re.compile(r"([A-Za-z])('+)")
_FACTORIAL_POWER = re.compile(r"(\w|\([^()]*\)|\{[^{}]*\})!(?=\^)")


def _readable(text: str) -> str:
    r"""Primes as indices, powers of factorials in brackets, exact exponents: the parser loses or cannot read them.

    >>> _readable("f'(x) + n!^2"), _readable("2^{0.5}")
    ('f_{77}(x) + (n!)^2', '2^{\\frac{1}{2}}')
    """
    text = _PRIMED.sub(lambda m: f"{m[1]}_{{7{'7' * len(m[2])}}}", text)
    text = _DECIMAL_POWER.sub(
        lambda m: rf"^{{{m[1]}\frac{{{Fraction(m[2]).numerator}}}{{{Fraction(m[2]).denominator}}}}}", text
    )
    return _FACTORIAL_POWER.sub(r"(\1!)", text)


_CAPITAL = re.compile(r"\\(?:text|mathrm|operatorname|begin|end) ?\{[^{}]*\}|\\[a-z]+|\\[A-Z][a-z]+|[A-Z]")


def _one_case(text: str) -> str:
    r"""Capitals as marked small letters: the parser takes `N` and `n`, `\Delta` and `\delta` for one symbol.

    >>> _one_case(r"2RC + \frac{N}{n}")
    '2r_{99}c_{99} + \\frac{n_{99}}{n}'
    """

    def mark(match: re.Match[str]) -> str:
        found = match.group()
        capital = len(found) == 1 or (found[0] == "\\" and found[1].isupper())
        return f"{found.lower()}_{{99}}" if capital and not text[match.end() :].lstrip().startswith("_") else found

    return _CAPITAL.sub(mark, text)


def _imaginary(text: str) -> bool:
    return bool(re.search(r"(?<![A-Za-z\\])i(?![A-Za-z])", text))


def _is_lone(value: Any) -> bool:
    """math-verify compares a lone symbol by its name only, blind to case."""
    from sympy import Symbol

    return isinstance(value, Symbol)


def _cancels(gold: Any, prediction: Any) -> bool:
    """Is the difference zero, with i the imaginary unit? Blind to nothing: other letters must cancel."""
    from sympy import Expr, I, simplify

    if not (isinstance(gold, Expr) and isinstance(prediction, Expr)):
        return False
    difference = prediction.doit() - gold.doit()
    units = {symbol: I for symbol in difference.free_symbols if str(symbol) == "i"}
    return simplify(difference.subs(list(units.items()))) == 0


@lru_cache(maxsize=4096)
def _parsed(text: str) -> list[Any]:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    logging.disable(logging.WARNING)
    normalisation = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
    )
    config = LatexExtractionConfig(boxed_match_priority=-1, normalization_config=normalisation)
    return parse(
        f"${text}$",
        extraction_config=[config],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=0,
    )


def warm() -> None:
    """Import and exercise everything once, so that a fork inherits it."""
    for one, other in (
        (r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"),
        (r"\frac{2n}{2}", "n"),
        (r"\sin x", r"\cos x"),
        ("x^2+y=3", "y=3-x^2"),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
        ("i^2", "-1"),
    ):
        equivalent(one, other)
