r"""Equality of two terms: text and exact arithmetic first, algebra where they cannot decide.

Two exact values are equal or they are not. Tolerance is for a decimal against an exact value that has no decimal form:
the last digit written may be rounded or cut off, and at least `LEAST_DIGITS` of them must be written and right. The
reason of a verdict says how far that went. Two numbers written out match only if equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from tasks.domain.grading.algebra import Undecided, close_values, same_values
from tasks.domain.grading.latex_normalisation import prose_words
from tasks.domain.grading.quantities import Number, number, same_in_base, split_unit, terminates

VerdictName = Literal["correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """answer: as extracted from the region; canonical: the normal form that was compared; null if there is none."""

    verdict: VerdictName
    reason: str
    answer: str | None
    canonical: str | None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"


LEAST_DIGITS = 6
#: What computing in double precision leaves uncertain, relative: digits beyond are noise, not a claim.
MACHINE_TOLERANCE = Fraction(1, 10**13)
EQUAL = "equal"
#: How two terms are the same (`equal`, or within what); empty if they are not.
Match = str
Same = Callable[[str, str], bool]
Matcher = Callable[[str, str], Match]


GREEK = (
    r"\\(?:[A-Z][a-z]+|alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|kappa|lambda|mu|nu|xi|rho|sigma|tau"
    r"|(?:var)?phi|chi|psi|omega|ell)(?![A-Za-z])"
)


class NeedsSymbolic(Exception):
    """Exact comparison of text and numbers cannot decide; a worker must."""


def squeeze(text: str) -> str:
    r"""Text without the spaces that mean nothing.

    >>> squeeze(r"2 \pi r"), squeeze("2 n"), squeeze("1 1/2")
    ('2\\pi r', '2n', '1 1/2')
    """
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)
    return re.sub(r"(?<![A-Za-z\d]) | (?![A-Za-z\d])|(?<=\d) (?=[A-Za-z])|(?<=[A-Za-z]) (?=\d)", "", text)


def exact_same(prediction: str, gold: str) -> Match:
    """Equality of two terms by text and exact arithmetic. Errors: NeedsSymbolic if that cannot decide."""
    if squeeze(prediction) == squeeze(gold):
        return EQUAL
    if (option := _option(_CHOICE.sub(r"\1", gold))) is not None and option == _option(prediction):
        return EQUAL
    if (name := _name(gold)) is not None and (other := _name(prediction)) is not None:
        return EQUAL if name == other else ""
    if (based := same_in_base(prediction, gold)) is not None:
        return EQUAL if based else ""
    a, b = number(prediction), number(gold)
    if a is None or b is None:
        raise NeedsSymbolic
    return same_numbers(a, b)


#: An option as a gold may write it: its letter answers it.
_CHOICE = re.compile(r"^(\([A-H]\)) [A-Z][A-Za-z ]*$")


def _option(text: str) -> str | None:
    """The letter of a multiple-choice answer, or null."""
    match = re.fullmatch(r"(?:\\\(|\()?(?:\\(?:text|mathrm|textbf) ?\{)? ?\(?([A-H])\)? ?\}?\)?", text)
    return match[1] if match else None


_NAMED = re.compile(r"(\\(?:angle|triangle|overline|text|mathrm|vec|overrightarrow)|[{} ])")


def _name(text: str) -> str | None:
    r"""A bare run of capitals: a word, a triangle, tosses of a coin, in which order counts. Null for anything else.

    >>> _name(r"\text{HTT}"), _name(r"\angle ABC"), _name("2AB"), _name("A")
    ('HTT', 'ABC', None, None)
    """
    bare = _NAMED.sub("", text)
    return bare if re.fullmatch("[A-Z]{2,}", bare) else None


def symbolic_same(prediction: str, gold: str) -> Match:
    """Equality of two terms; asks algebra where arithmetic cannot decide. May take for ever."""
    try:
        return exact_same(prediction, gold)
    except NeedsSymbolic:
        return equivalent(prediction, gold)


def same_numbers(prediction: Number, gold: Number) -> Match:
    r"""Equal in value, where one side may have left out its unit.

    A percent sign is a factor of 1/100. A gold may mean percent and not say so if it is above 1 and no more than 100:
    `50\%` answers 50 and 0.5, `0.5\%` does not answer 0.5, and `2000\%` answers 20 alone.

    >>> same_numbers(Number(Fraction(1, 3)), Number(Fraction(333333, 10**6), place=Fraction(1, 10**6)))
    'equal within 1e-06, relative: the digits written'
    """
    a, b = prediction.value, gold.value
    units = {prediction.unit, gold.unit}
    if "%" in units and len(units) == 2:
        if units != {"%", None}:
            return ""
        scaled = (a / 100 == b) if prediction.unit == "%" else (a == b / 100)
        meant = abs(b) > 1 and (gold.unit == "%" or abs(b) <= 100)
        return EQUAL if scaled or (a == b and meant) else ""
    if len(units) == 2 and None not in units:
        return ""
    if a == b:
        return EQUAL
    written, exact = (prediction, b) if prediction.decimal else (gold, a)
    if prediction.decimal == gold.decimal or terminates(exact):
        return ""
    tolerance = decimal_tolerance(written)
    return within(tolerance) if abs(written.value - exact) <= tolerance * abs(exact) else ""


def decimal_tolerance(written: Number) -> Fraction:
    """How far a decimal may be, relative, from the exact value that it stands for: one in its last digit.

    >>> [float(decimal_tolerance(Number(Fraction("2.5"), Fraction(1, 10**n)))) for n in (4, 5, 8)]
    [0.0, 1e-06, 4e-09]
    """
    if written.place is None or abs(written.value) < written.place * 10 ** (LEAST_DIGITS - 1):
        return Fraction(0)
    return max(min(written.place / abs(written.value), Fraction(1, 10**LEAST_DIGITS)), MACHINE_TOLERANCE)


def within(tolerance: Fraction) -> Match:
    return f"equal within {float(tolerance):.0e}, relative: the digits written"


# ---- algebra: formulas read by math-verify's parser. May hang: workers only.

_COMMAND = re.compile(r"\\[A-Za-z]+")
_TEXTUAL = re.compile(r"\\(?:text|mathrm|textrm|textbf|mbox|operatorname|mathbf) ?\{([^{}]*)\}")


_GREEK = re.compile(GREEK)


def letters(text: str) -> frozenset[str]:
    """Letters that stand for variables, case kept."""
    bare = _COMMAND.sub(" ", _TEXTUAL.sub(" ", text))
    return frozenset([*re.findall(r"[A-Za-z]", bare), *_GREEK.findall(text)]) - {"e", "i"}


#: What a sum, a product, a limit or an integral runs over.
_BOUND = re.compile(
    r"\\(?:sum|prod) ?_ ?\{? ?([A-Za-z]) ?=|\\lim ?_ ?\{? ?([A-Za-z]) ?\\to"
    r"|\\int(?![A-Za-z]).*?d ?([A-Za-z])(?![A-Za-z])"
)


def _with_index_of(text: str, gold: str) -> str:
    r"""With the gold's letter for what a sum or an integral runs over, if both have one and it is free.

    >>> _with_index_of(r"\sum_{k=1}^n a_k", r"\sum_{i=1}^n i"), _with_index_of(r"\int_0^x t dt", r"\int_0^x x dx")
    ('\\sum_{i=1}^n a_i', '\\int_0^x t dt')
    """
    mine, theirs = ({"".join(found) for found in _BOUND.findall(one)} for one in (text, gold))
    if len(mine) != 1 or len(theirs) != 1 or theirs <= letters(text):
        return text
    (old,), (new,) = mine, theirs
    return re.sub(rf"\\[A-Za-z]+|{old}", lambda found: new if found[0] == old else found[0], text)


def plain_words(text: str) -> str | None:
    """A worded answer in normal form, or null if the answer is not words."""
    words = re.sub(r"\s+", " ", _TEXTUAL.sub(r"\1", text)).strip(" .()").lower()
    wordy = "\\" in text or prose_words(words)
    return words if re.fullmatch(r"[a-z][a-z' -]*", words) and wordy else None


def equivalent(prediction: str, gold: str) -> Match:
    """How `prediction` is the same value as `gold`. Both normalised terms, units allowed.

    Errors: Undecided where algebra cannot tell, with the reason.
    """
    one, other = plain_words(prediction), plain_words(gold)
    if one is not None and one == other:
        return EQUAL
    (a, unit_a), (b, unit_b) = _unit(prediction), _unit(gold)
    if unit_a and unit_b and unit_a != unit_b:
        return ""
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


def _equal(prediction: str, gold: str) -> Match:
    with suppress(NeedsSymbolic):
        return exact_same(prediction, gold)
    if any(bool(mark.search(prediction)) != bool(mark.search(gold)) for mark in _LOST):
        return ""
    if prose_words(prediction):
        return ""
    if prose_words(gold):
        if plain_words(gold) is None:
            raise Undecided(f"the gold is not understood: {gold}"[:200])
        return ""
    if any(map(_ORDERED.search, (prediction, gold))):
        return EQUAL if _unbraced(prediction) == _unbraced(gold) else ""
    if ":" in prediction + gold:
        parts, others = prediction.split(":"), gold.split(":")
        return EQUAL if len(parts) == len(others) and all(map(_equal, parts, others)) else ""
    prediction = _with_index_of(prediction, gold)
    theirs, ours = letters(prediction), letters(gold)
    if not (theirs <= ours or ours <= theirs):
        return ""
    wanted, got = _parsed(_readable(gold)), _parsed(_readable(prediction))
    if wanted is None or got is None:
        return ""
    try:
        if same_values(got, wanted):
            return EQUAL
    except (NotImplementedError, ValueError, TypeError, AttributeError) as error:  # of the algebra system
        raise Undecided(" ".join(str(error).split())[:200]) from None
    tolerance = _tolerance(prediction, gold)
    return within(tolerance) if tolerance and close_values(got, wanted, tolerance) else ""


def _tolerance(prediction: str, gold: str) -> Fraction | None:
    """What rounding may leave of a side that is one decimal (times i), if the other is none. In a formula none is."""
    real = (re.sub(r"(?<=\d) ?i$", "", text) for text in (prediction, gold))
    written = [lone for text in real if (lone := number(text)) is not None and lone.decimal]
    return decimal_tolerance(written[0]) if len(written) == 1 else None


#: Limits of unknown functions, and products in which order counts: of vectors, of what capitals name, `AB` beside `BA`.
_ORDERED = re.compile(
    r"\\lim.*(?<![A-Za-z\\])[fgh] ?\("
    r"|\\(?:vec|overrightarrow|hat|bar).*\\times|(?<![A-Za-z\\])[A-Z] ?\\times ?[A-Z](?![A-Za-z])|([A-Z])([A-Z]).*\2\1"
)


def _unbraced(text: str) -> str:
    return re.sub(r"[{} ]", "", text)


#: What the parser would drop without a word: minutes of arc, primes on brackets, an index on a number, three dots.
_LOST = (
    re.compile(r"[\d)\]}|] ?'"),
    re.compile(r"(?<![_\d])\d+ ?_"),
    re.compile(r"\\[lc]?dots"),
    re.compile(r"^\[(?![A-Z\d.]*\]$).*\]$"),
    re.compile(r"\\(?:log|ln|exp) ?\^ ?\{ ?-"),
)
_DECIMAL = re.compile(r"(?<![\w.])\d*\.\d+(?![\d.])")
#: The inverse of a function, and a derivative by its number: no powers.
_INVERSE = re.compile(r"((?<![A-Za-z\\])[fghFGH]|\\(?:var)?(?:phi|psi)(?=[^(]*\())(?:_\{?\w\}?)? ?\^ ?\{ ?- ?1 ?\}")
_DERIVED = re.compile(r"(?<![A-Za-z\\])([A-Za-z]) ?\^ ?\{ ?\( ?(\d+|[nkm]) ?\) ?\}")
_PRIMED = re.compile(r"([A-Za-z])('+)")
_TIMES = re.compile(r"(?<![\w^_.{])(\d+) ?(?=\(\d+\))")
#: Every second factor alone: the parser takes the factorial of a factorial.
_DOUBLE_FACTORIAL = re.compile(r"([A-Za-z]|\d+|\([^()]*\))!!(?!!)")
#: The parser takes braces for brackets.
_FRACTIONAL = re.compile(r"\\\{((?:(?!\\[{}]).)*)\\\}")
#: What is negative has a real root of odd degree, and the parser takes another one.
_ODD_ROOT = re.compile(r"(\\sqrt ?\[ ?\d*[13579] ?\]) ?\{ ?- ?((?:[^-+{}]|\{[^{}]*\})+)\}")
_FACTORIAL_POWER = re.compile(r"(\w|\([^()]*\)|\{[^{}]*\})!(?=\^)")


def _readable(text: str) -> str:
    r"""Primes as indices, powers of factorials in brackets, exact decimals: the parser loses or cannot read them.

    >>> _readable("f'(x) + n!^2"), _readable("2^{0.5}"), _readable("1000(26)"), _readable(r"\sqrt[3]{-2}")
    ('f_{77}(x) + (n!)^2', '2^{(\\frac{5}{10})}', '1000\\cdot (26)', '(-\\sqrt[3]{2})')
    """
    text = _INVERSE.sub(r"\1_{991}", _DERIVED.sub(_derived, text))
    text = _PRIMED.sub(lambda m: f"{m[1]}_{{7{'7' * len(m[2])}}}", text)
    text = _ODD_ROOT.sub(r"(-\1{\2})", _FRACTIONAL.sub(r"\\text{fractional}(\1)", text))
    text = _DOUBLE_FACTORIAL.sub(r"\\text{semifactorial}(\1)", _GCD.sub(_unevaluated, text))
    text = _TIMES.sub(r"\1\\cdot ", _DECIMAL.sub(_as_fraction, text))
    return _one_case(_FACTORIAL_POWER.sub(r"(\1!)", text))


#: The parser takes the common divisor of polynomials.
_GCD = re.compile(r"\\(?:gcd|operatorname ?\{(?:gcd|lcm)\}|text ?\{gcd\}) ?\(([^(),]*),([^(),]*)\)")


def _unevaluated(match: re.Match[str]) -> str:
    """A common divisor as an unknown function of its arguments, in alphabetical order; one of numbers as it is."""
    if not re.search("[A-Za-z]", match[1] + match[2]):
        return match[0]
    one, other = sorted((match[1].strip(), match[2].strip()))
    name = "lcm" if "lcm" in match[0] else "gcd"
    return rf"\text{{{name}}}({one},{other})"


def _as_fraction(match: re.Match[str]) -> str:
    whole, _, decimals = match[0].partition(".")
    return rf"(\frac{{{int(whole + decimals)}}}{{{10 ** len(decimals)}}})"


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


def _derived(match: re.Match[str]) -> str:
    """`f^{(3)}` as what `f'''` becomes."""
    count = match[2]
    return (
        f"{match[1]}_{{7{'7' * int(count)}}}"
        if count.isdigit() and int(count) < 30
        else f"{match[1]}_{{992{int(count, 36)}}}"
    )


#: A letter with a power: the quick mode takes the power for what an index may follow.
_RAISED = re.compile(r"(\\(?:pi|alpha|beta|theta|lambda)|(?<![A-Za-z\\])[A-Za-df-hj-z])(?= ?\^)")


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """The value of a formula; None if it cannot be read.

    The parser's quick mode (SLL) reads what has no index; the full mode (LL) reads the rest.
    """
    from antlr4.atn.PredictionMode import PredictionMode
    from latex2sympy2_extended import NormalizationConfig, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
    from math_verify.parser import should_treat_as_complex

    class Reader(_Latex2Sympy):
        mode = PredictionMode.LL

        def create_parser(self, latex_str: str) -> Any:
            parser = super().create_parser(latex_str)
            parser._interp.predictionMode = self.mode
            return parser

    settings = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
    )
    latex = normalize_latex(text, settings)
    reader = Reader(None, is_real=not should_treat_as_complex(latex), config=ConversionConfig())
    if "_" not in latex:
        with suppress(Exception):
            reader.mode = PredictionMode.SLL
            return reader.parse(_RAISED.sub(r"{\1}", latex))
    with suppress(Exception):
        reader.mode = PredictionMode.LL
        return reader.parse(latex)
    return None


#: Written differently, and the same or not: what most answers are made of. The parser learns its grammar as it reads.
_WARMING = (
    (r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"),
    (r"\frac{2n}{2}", "n"),
    (r"\sin x", r"\cos x"),
    ("x^2+y=3", "y=3-x^2"),
    ("y^2=x^2", "y=x"),
    (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    ("i^2", "-1"),
    (r"\left(n-2\right) 2^{n}+1", r"-2 \cdot(n+1)"),
    (r"\sqrt[3]{7}+\log_{2} 8", r"\pi^{2}-\ln 2"),
    (r"\lfloor x\rfloor+|x|", r"\frac{x!}{(x-1)!}"),
    (r"e^{-x}a_{n}", r"\frac{1}{e^{x}} \times b_{n}"),
)


def warm() -> None:
    """Import and exercise everything once, so that a fork inherits it."""
    for one, other in _WARMING:
        with suppress(Undecided):
            equivalent(one, other)
