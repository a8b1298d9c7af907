r"""Values of formulas, and the comparison of two formulas by their values.

Two formulas are equal if their values agree at every test point where both are real. If the values are real nowhere,
the complex values must agree. Rational values are compared exactly, and others with far more digits than needed. A term
without a value (an unknown function, a vector) is replaced by a number that its name and arguments determine.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from mpmath import mp

from tasks.domain.grading.formulas import FUNCTIONS, Expr, constant, names_in, nodes, terminates


class Undecided(Exception):
    """The numbers are too large to compare. The message says so, and there is no verdict."""


class NoValue(Exception):
    """A formula has no value at a point."""


#: Digits of the first computation of a value, and the largest number of digits.
DIGITS, MAX_DIGITS = 90, 20_000
_MAX_BITS = 70_000
_MAX_COUNT = 20_000
#: Units of work that one verdict may take, which is about two seconds.
MAX_WORK = 300_000
_CONSTANT_VALUES = {"pi": lambda: +mp.pi, "e": lambda: +mp.e, "i": lambda: mp.mpc(0, 1)}


def real(value: Any) -> Any:
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _floor(value: Any) -> Fraction:
    """Round a value down. Treat a value within rounding error of a whole number as that number."""
    if isinstance(value, Fraction):
        return Fraction(math.floor(value))
    if isinstance(value, mp.mpc | mp.matrix):
        raise NoValue
    nearest = mp.nint(value)
    return Fraction(int(nearest if abs(value - nearest) < mp.mpf(10) ** -40 else mp.floor(value)))


def _whole(value: Any, most: int = _MAX_COUNT) -> int:
    floor = _floor(value)
    if (isinstance(value, Fraction) and value.denominator > 1) or real(abs(value - floor)) > mp.mpf(10) ** -40:
        raise NoValue
    if abs(value) > most:
        raise Undecided(f"a number above {most:,} is counted to")
    return int(floor)


def _power(base: Any, power: Any) -> Any:
    if isinstance(base, mp.matrix) or isinstance(power, mp.matrix):
        raise NoValue
    whole = isinstance(power, Fraction) and power.denominator == 1
    if whole and isinstance(base, Fraction):
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(power.numerator) * size <= 4 * _MAX_BITS or abs(base) in (0, 1):
            return base ** (int(power) if abs(base) != 1 else int(power) % 2)
    base, power = real(base), real(power)
    if base and abs(base) != 1 and abs(power) * (1 + abs(mp.mag(base))) > 8 * _MAX_BITS:
        raise Undecided("a power of too many digits")
    return mp.power(base, power)


def _root(value: Any, degree: Any) -> Any:
    odd = isinstance(degree, Fraction) and degree.denominator == 1 and degree % 2
    value = real(value)
    if odd and not isinstance(value, mp.mpc) and value < 0:
        return -mp.root(-value, int(degree))
    return mp.sqrt(value) if degree == 2 else mp.power(value, 1 / real(degree))


def _binomial(above: Any, below: Any) -> Any:
    k = _whole(below)
    return math.prod((above - j for j in range(k)), start=Fraction(1)) / math.factorial(k)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": lambda *terms: functools.reduce(operator.add, terms),
    "*": lambda *factors: functools.reduce(operator.mul, factors),
    "/": operator.truediv,
    "%": lambda x: x / 100,
    "^": _power,
    "neg": operator.neg,
    "mod": lambda a, b: a - b * _floor(a / b),
    "root": _root,
    "deg": lambda x: real(x) * mp.pi / 180,
    "abs": abs,
    "floor": _floor,
    "ceil": lambda x: -_floor(-x),
    "frac": lambda x: x - _floor(x),
    "max": max,
    "min": min,
    "gcd": lambda *parts: Fraction(math.gcd(*(_whole(part, 10**30) for part in parts))),
    "lcm": lambda *parts: Fraction(math.lcm(*(_whole(part, 10**30) for part in parts))),
    "!": lambda n: Fraction(math.factorial(_whole(n))),
    "!!": lambda n: Fraction(math.prod(range(_whole(n), 0, -2))),
    "binom": _binomial,
    "row": lambda *cells: [real(cell) for cell in cells],
    "matrix": lambda *rows: mp.matrix(rows),
    "det": mp.det,
    "ln": lambda x: mp.log(real(x)),
    "lg": lambda x: mp.log(real(x), 10),
    **{n: lambda x, n=n: getattr(mp, n.replace("arc", "a"))(real(x)) for n in FUNCTIONS - {"ln", "lg"}},
}


#: left: units of work that this thread may still do for the verdict. An operation with few digits is one unit.
_work = threading.local()


def start_work() -> None:
    """Reset the work limit for the next verdict."""
    _work.left = MAX_WORK


def _spend(units: float) -> None:
    _work.left = getattr(_work, "left", MAX_WORK) - units
    if _work.left < 0:
        raise Undecided("too much to compute")


class _Evaluation:
    """The values of formulas at one point. real: whether no root, power or logarithm of a negative number occurred.
    bits: binary exponent of the largest or the smallest intermediate number."""

    def __init__(self, at: dict[str, Any], digits: int) -> None:
        self.at, self.real, self.bits = at, True, 0
        self.cost = (digits / DIGITS) ** 1.6

    def of(self, formula: Expr) -> Any:
        """Return the value of a formula. Raise Undecided or NoValue."""
        op, args = formula.op, formula.args
        _spend(self.cost)
        match op:
            case "num":
                return self.seen(args[0])
            case "name":
                return self.at[args[0]]
            case "const":
                if args[0] == "inf":
                    raise NoValue
                return _CONSTANT_VALUES[args[0]]()
            case "sum" | "prod":
                return self.running(op, *args)
            case "call":
                return _hashed(args[0], *map(self.written, args[1:]))
        try:
            parts = [self.of(part) for part in args]
            mixed = [part if isinstance(part, list) else real(part) for part in parts]
            exact = all(isinstance(part, Fraction) for part in parts)
            value = _OPERATIONS[op](*(parts if exact or op in ("^", "root", "binom") else mixed))
        except (ZeroDivisionError, ValueError, OverflowError, TypeError, AssertionError):  # mpmath asserts on matrices
            raise NoValue from None
        if op in ("sinh", "cosh", "tanh"):
            self.bits = max(self.bits, int(3 * abs(parts[0])))
        if isinstance(value, mp.mpc) and not any(isinstance(part, mp.mpc) for part in parts):
            self.real = False
        return self.seen(value)

    def seen(self, value: Any) -> Any:
        """Record the size of a value, and return the value."""
        if isinstance(value, Fraction):
            above, below = value.numerator.bit_length(), value.denominator.bit_length()
            self.bits = max(self.bits, abs(above - below) if value else 0)
            _spend((above + below) / 1_000)
            if max(above, below) > 4 * _MAX_BITS:
                raise Undecided("numbers of too many digits")
        elif isinstance(value, mp.mpf | mp.mpc):
            if not mp.isfinite(value):
                raise NoValue
            self.bits = max(self.bits, abs(int(mp.mag(value)))) if value else self.bits
            if self.bits > _MAX_BITS:
                raise Undecided(f"numbers of more than {MAX_DIGITS:,} digits")
        return value

    def running(self, op: str, variable: str, body: Expr, low: Expr, high: Expr) -> Any:
        """Return the value of a sum or a product, term by term."""
        first, last = (_whole(self.of(end), 10**9) for end in (low, high))
        if last - first > 2_000:
            raise Undecided("a sum of too many terms")
        kept, found = self.at, constant(op == "prod").args[0]
        for value in range(first, last + 1):
            self.at = {**kept, variable: Fraction(value)}
            pair = [found, self.of(body)]
            pair = pair if all(isinstance(part, Fraction) for part in pair) else [real(part) for part in pair]
            found = self.seen(_OPERATIONS["+" if op == "sum" else "*"](*pair))
        self.at = kept
        return found

    def written(self, formula: Expr) -> str:
        """Return the value of a formula as text. Formulas with equal values give equal texts."""
        value = self.of(formula)
        return str(mp.nstr(real(value), 25)) if value else "0"


def _hashed(*parts: str) -> Fraction:
    return 1 + Fraction(int.from_bytes(_digest("\0".join(parts))[:8]), 1 << 63)


#: For each test point: sign of the variables (0: either sign), and whether they are above 1 (1) or below 1 (0).
_POINTS = ((1, 0), (1, 1), (-1, 0), (-1, 1), (0, 0), (0, 1), (0, 0), (0, 1))
#: Number of test points at 1, 2, 3 and so on. They, and then large numbers of both signs, test steps and corners.
_WHOLE_POINTS = 24
_LARGE = (30, 1_000, 10**6)
_STEPPED = {"abs", "floor", "ceil", "frac", "max", "min", "mod"}
_COUNTED = {"!", "!!", "binom", "sum", "prod", "gcd", "lcm"}


def points(names: list[str], formulas: tuple[Expr, ...]) -> Iterator[dict[str, Fraction]]:
    """Return test points for the variables; one empty point if there are no variables. The points depend on the names
    and on the operations: whole and large numbers for steps and corners, whole numbers alone for counting."""
    if not names:
        yield {}
        return
    every = [node for formula in formulas for node in nodes(formula)]
    ops = {node.op for node in every}
    if not ops & _COUNTED:
        for place in range(len(_POINTS)):
            yield {name: _coordinate(name, place) for name in names}
    # the root or power of a negative number may become real, or change its sign, only far from zero
    turns = any(
        names_in(n.args[n.op == "^"]) and any(part.op == sign for part in nodes(n.args[0]))
        for sign, op in (("+", "root"), ("neg", "^"))
        for n in every
        if n.op == op
    )
    if not (turns or ops & (_STEPPED | _COUNTED)):
        return
    for place in range(1, _WHOLE_POINTS + 1):
        yield {
            name: Fraction(place if name == names[0] else _digest(f"{name}:{place}")[0] % _WHOLE_POINTS + 1)
            for name in names
        }
    if not ops & _COUNTED:
        sizes = [abs(int(n.args[0])) for n in every if n.op == "num"]
        for size in (*_LARGE, 10 * min(max(sizes, default=1), 10**12)):
            for place, sign in enumerate((1, -1, 0, 0)):
                yield {name: size * _coordinate(f"{name}:{size}", place, sign) for name in names}


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _coordinate(name: str, place: int, sign: int | None = None) -> Fraction:
    """Return a rational number that the name and the place determine. sign: that of the place if None."""
    of_point, large = _POINTS[place]
    sign = of_point if sign is None else sign
    digest = _digest(f"{name}:{place}")
    size = Fraction(int.from_bytes(digest[:2]) % 997 + 2, 1009)
    return (sign or (1 if digest[2] % 2 else -1)) * (1 + 3 * size if large else size)


#: (values of the formulas at a point, largest difference between equal values), see `values`.
Values = tuple[list[Any], Any]


def values(formulas: tuple[Expr, ...]) -> Iterator[Values]:
    """Yield the values of formulas at each point where all have one: real values, or complex ones if none are real."""
    names = sorted(frozenset().union(*map(names_in, formulas)))
    complex_ones: list[Values] = []
    any_real = False
    for at in points(names, formulas):
        try:
            found, bits, real = _at_point(formulas, at)
        except NoValue:
            continue
        exact = all(isinstance(value, Fraction) for value in found)
        slack = Fraction(0) if exact else mp.mpf(10) ** (20 - _digits(bits) + int(bits * math.log10(2)))
        if real and not any(isinstance(value, mp.mpc) and abs(value.imag) > slack for value in found):
            any_real = True
            yield found, slack
        else:
            complex_ones.append((found, slack))
    if not any_real:
        yield from complex_ones


def _digits(bits: int) -> int:
    """Return the number of digits that suffices for numbers of this many bits."""
    spread = int(bits * math.log10(2)) + 1
    return max(DIGITS, min(50 + 8 * spread, MAX_DIGITS) if spread < 1_000 else 60 + 2 * spread)


def _at_point(formulas: tuple[Expr, ...], at: dict[str, Fraction]) -> tuple[list[Any], int, bool]:
    """Return (values, their bits, whether all are real). Compute again if the numbers need more digits."""
    digits, bits = DIGITS, 0
    while True:
        point = _Evaluation(at, digits)
        with mp.workdps(digits):
            found = [point.of(formula) for formula in formulas]
            exact = all(isinstance(value, Fraction) for value in found)
            found = found if exact else [real(value) for value in found]
        bits = bits or point.bits
        if exact or digits >= _digits(bits):
            return found, bits, point.real
        digits = _digits(bits)


def _alike(a: Any, b: Any, slack: Any) -> bool:
    matrices = [isinstance(value, mp.matrix) for value in (a, b)]
    if any(matrices):
        shaped = all(matrices) and (a.rows, a.cols) == (b.rows, b.cols)
        return shaped and all(abs(x - y) <= slack for x, y in zip(a, b, strict=True))
    with mp.workdps(MAX_DIGITS if slack else DIGITS):
        return bool(abs(a - b) <= slack)


def same_value(one: Expr, other: Expr) -> bool:
    """Return whether two formulas are equal wherever both have a value. Raise Undecided."""
    met = False
    for (a, b), slack in values((one, other)):
        met = True
        if not _alike(a, b, slack):
            return False
    return met or one == other


def _numbers(formulas: tuple[Expr, ...]) -> Iterator[Values]:
    """Return the values at each test point at which no value is a matrix."""
    return (found for found in values(formulas) if not any(isinstance(v, mp.matrix) for v in found[0]))


def near(one: Expr, other: Expr, tolerance: Fraction) -> bool:
    """Return whether two constants, not both finite decimals, differ by at most `tolerance`, relative to the larger."""
    if names_in(one) | names_in(other):
        return False
    for (a, b), _ in _numbers((one, other)):
        if isinstance(a, Fraction) and isinstance(b, Fraction) and terminates(a) and terminates(b):
            return False
        with mp.workdps(DIGITS):
            return _alike(a, b, max(abs(a), abs(b)) * (tolerance if isinstance(b, Fraction) else real(tolerance)))
    return False


def factor_between(one: Expr, other: Expr) -> Any:
    """Return the constant factor of the first formula relative to the second; None if there is none."""
    ratios = [found for (found,), _ in _numbers((Expr("/", (one, other)),))]
    with mp.workdps(DIGITS):
        same = all(_alike(real(ratio), real(ratios[0]), mp.mpf(10) ** -40) for ratio in ratios)
    return ratios[0] if ratios and same and ratios[0] else None


def with_values(formula: Expr, known: dict[Expr, Expr]) -> Expr:
    """Return the formula with each known part replaced by its value."""
    parts = (with_values(part, known) if isinstance(part, Expr) else part for part in formula.args)
    return known.get(formula) or Expr(formula.op, tuple(parts))
