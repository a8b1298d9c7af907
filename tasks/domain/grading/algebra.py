r"""Equality of two parsed values, without rounding: exact arithmetic, and identities tested at fixed points.

Two expressions are equal if their values agree at every point where both are real (everywhere, if they are nowhere
real), to `GUARD_DIGITS` more digits than the numbers in them have. Constants are such expressions with no variables;
rational values are compared exactly. May take for ever: workers only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from tasks.domain.grading.quantities import terminates


class Undecided(Exception):
    """Algebra cannot decide either: no verdict, with the reason."""


GUARD_DIGITS = 60
#: An expression whose numbers have more digits than this is compared as a rational or not at all.
MAX_DIGITS = 20_000


def digits_lost(value: Any, at: dict[Any, Any]) -> int:
    """An estimate from above of how many decimal digits a value at a point may lose to cancellation.

    The numbers of an expression with their powers multiplied out, and how far the terms of each sum lie apart; a
    function of a tiny number leaves as much as its square (`1-\\cos x` is x²/2), a hyperbolic one its exponential.
    """
    from sympy import Add, Function, Pow, Rational, exp, preorder_traversal
    from sympy.functions.elementary.hyperbolic import HyperbolicFunction

    total = 0.0
    for node in preorder_traversal(value):
        if isinstance(node, Rational):
            total += (int(node.p).bit_length() + int(node.q).bit_length()) * math.log10(2)
        elif isinstance(node, Add) and node.free_symbols:
            sizes = [_magnitude(term.xreplace(at)) for term in node.args]
            total += max(sizes) - min(sizes)
        elif isinstance(node, Pow | exp):
            base, power = node.as_base_exp()
            if base.is_number and power.is_number:
                total += min(10 ** min(_magnitude(power), 300) * (1 + abs(_magnitude(base))), 2.0 * MAX_DIGITS)
        elif isinstance(node, Function) and len(node.args) == 1:
            size = _magnitude(node.args[0].xreplace(at))
            total += min(10 ** min(size, 300) if isinstance(node, HyperbolicFunction) else 0, MAX_DIGITS) + 2 * abs(
                size
            )
    return int(total)


def _magnitude(value: Any) -> float:
    """The decimal logarithm of a constant, between limits; 0 for what is none."""
    if not value.is_number:
        return 0
    size = abs(value.evalf(5))
    if not size.is_Float or not size:
        return 0
    _, mantissa, exponent, _ = size._mpf_
    return max(min((math.log2(mantissa) + exponent) * math.log10(2), 2.0 * MAX_DIGITS), -2.0 * MAX_DIGITS)


#: Sign (0: either) and magnitude of the variables at each point: below 1 and above, alike and mixed.
POINTS = ((1, 0), (1, 1), (-1, 0), (-1, 1), (0, 0), (0, 1), (0, 0), (0, 1))
#: Where formulas have steps or corners: whole numbers from 1, then numbers about so large, of both signs.
WHOLE_POINTS = 24
LARGE = (30, 1_000, 10**6)


def points(names: list[Any], formulas: tuple[Any, ...]) -> Iterator[dict[Any, Any]]:
    """Values of the variables, point by point; one empty point if there are none. They depend on the names alone.

    Steps and corners (floor, absolute value, maximum, remainder, a root of a sum) show at whole and at large
    points; what is real for whole numbers only (`(-1)^n`) has a value there.
    """
    if not names:
        yield {}
        return
    for place in range(len(POINTS)):
        yield {name: _coordinate(str(name), place) for name in names}
    if not any(_has_steps(formula) for formula in formulas):
        return
    for place in range(1, WHOLE_POINTS + 1):
        yield {name: _whole(str(name), place, first=name == names[0]) for name in names}
    for size in (*LARGE, 10 * _largest(formulas)):
        for place, sign in enumerate((1, -1, 0, 0)):
            yield {name: size * _coordinate(f"{name}:{size}", place, sign) for name in names}


def _has_steps(formula: Any) -> bool:
    from sympy import Abs, Max, Min, Mod, Piecewise, Pow, ceiling, floor, frac, preorder_traversal, sign

    kinds = (Abs, Max, Min, Mod, Piecewise, ceiling, floor, frac, sign)
    return any(
        isinstance(node, kinds)
        or (isinstance(node, Pow) and (_root_of_sum(node) or (node.base.is_negative and node.exp.free_symbols)))
        for node in preorder_traversal(formula)
    )


def _root_of_sum(power: Any) -> bool:
    """A square root that may be real, or turn its sign, far from zero only: `\\sqrt{x-10}`, `\\sqrt{(x-5)^2}`."""
    from sympy import Add

    return bool(power.exp.is_Rational and power.exp.q == 2 and power.base.free_symbols and power.base.has(Add))


def _largest(formulas: tuple[Any, ...]) -> int:
    from sympy import Rational

    sizes = [abs(int(number)) for formula in formulas for number in formula.atoms(Rational)]
    return min(max(sizes, default=1), 10**12)


def _coordinate(name: str, number: int, sign: int | None = None) -> Any:
    """A rational that depends on the name and the point alone; without a sign, that of the point."""
    from sympy import Rational

    of_point, large = POINTS[number]
    sign = of_point if sign is None else sign
    digest = hashlib.sha256(f"{name}:{number}".encode()).digest()
    size = Rational(int.from_bytes(digest[:2]) % 997 + 2, 1009)
    return (sign or (1 if digest[2] % 2 else -1)) * (1 + 3 * size if large else size)


def _whole(name: str, number: int, first: bool) -> Any:
    """The first variable counts up; the others take whole numbers of their own."""
    from sympy import Integer

    return Integer(number if first else hashlib.sha256(f"{name}:{number}".encode()).digest()[0] % WHOLE_POINTS + 1)


#: (value of the prediction at a point, of the gold, digits they have; 0 if rational).
Values = tuple[Any, Any, int]


def same_values(prediction: Any, gold: Any) -> bool:
    """Is one parsed value the other? Expressions, equations and inequalities; anything else only if written alike.

    Errors: Undecided where neither numbers nor algebra can tell.
    """
    from sympy import Expr, MatrixBase, MatrixExpr
    from sympy.core.relational import Relational

    if _nowhere(prediction) or _nowhere(gold):
        return False
    if prediction == gold:
        return True
    prediction, gold = _rates(prediction), _rates(gold)
    if isinstance(gold, Relational) and isinstance(prediction, Relational):
        return _same_relation(prediction, gold)
    if isinstance(gold, MatrixBase | MatrixExpr) and isinstance(prediction, MatrixBase | MatrixExpr):
        one, other = prediction.doit(), gold.doit()
        if not (isinstance(one, MatrixBase) and isinstance(other, MatrixBase)) or one.shape != other.shape:
            return False
        return all(same_values(a, b) for a, b in zip(one.flat(), other.flat(), strict=True))
    if not (isinstance(gold, Expr) and isinstance(prediction, Expr)):
        return False
    try:
        return _agree(_values(prediction, gold, until=lambda found: not _agree(found[-1:])))
    except Undecided:
        return _cancel(prediction, gold)


def _rates(value: Any) -> Any:
    """With a variable of its own for the derivative of an unknown: as a constant it would be nothing."""
    from sympy import Basic, Derivative, Symbol

    if not isinstance(value, Basic):
        return value
    unknown = {d for d in value.atoms(Derivative) if d.expr.free_symbols and not d.expr.free_symbols & {*d.variables}}
    return value.xreplace({d: Symbol(str(d)) for d in unknown})


def _nowhere(value: Any) -> bool:
    """Is something divided by zero in it?"""
    from sympy import Expr, nan, zoo

    return isinstance(value, Expr) and value.has(zoo, nan)


def close_values(prediction: Any, gold: Any, tolerance: Fraction) -> bool:
    """Do two constants differ by at most `tolerance`, relative to the gold? Never, if either is a finite decimal."""
    from sympy import Expr, Rational

    if not (isinstance(gold, Expr) and isinstance(prediction, Expr)):
        return False
    try:
        values = _values(prediction, gold)
    except Undecided:
        return False
    if len(values) != 1 or all(v.is_Rational and terminates(Fraction(int(v.p), int(v.q))) for v in values[0][:2]):
        return False
    a, b, _ = values[0]
    return bool(abs(a - b) <= Rational(tolerance.numerator, tolerance.denominator) * abs(b))


def _agree(values: list[Values]) -> bool:
    return all(_alike(*pair) for pair in values)


def _values(prediction: Any, gold: Any, until: Callable[[list[Values]], bool] = lambda _: False) -> list[Values]:
    """(value of the prediction, of the gold, digits they have), point by point. `f(2)` of an unknown f is a variable.

    until: no further than the first point at which both are real and it holds of those found so far.
    Errors: Undecided if there is no point at which both have one.
    """
    from sympy import I, Symbol
    from sympy.core.function import AppliedUndef

    one, other = prediction.doit(), gold.doit()
    unknown = {call: Symbol(str(call)) for call in one.atoms(AppliedUndef) | other.atoms(AppliedUndef)}
    one, other = one.xreplace(unknown), other.xreplace(unknown)
    names = sorted(one.free_symbols | other.free_symbols, key=str)
    unit = {name: I for name in names if str(name) == "i"}
    one, other = one.xreplace(unit), other.xreplace(unit)
    names = [name for name in names if name not in unit]
    roots = _under_roots(one) | _under_roots(other)
    found, real = [], []
    for at in points(names, (one, other)):
        if (values := _at_point(one, other, at)) is None:
            continue
        a, b, digits = values
        found.append(values)
        if _is_real(a, digits) and _is_real(b, digits) and _defined(roots, at):
            real.append(values)
            if until(real):
                break
    if not found:
        raise Undecided("no value at any point")
    return real or found


def _at_point(one: Any, other: Any, at: dict[Any, Any]) -> tuple[Any, Any, int] | None:
    """(one value, the other, digits they have; 0 if rational), both the same if they differ by rounding alone."""
    here, there = one.xreplace(at), other.xreplace(at)
    if here.is_Rational and there.is_Rational:
        return here, there, 0
    digits = GUARD_DIGITS + digits_lost(one, at) + digits_lost(other, at)
    if digits > MAX_DIGITS:
        raise Undecided(f"numbers of more than {MAX_DIGITS:,} digits")
    a, b = _number(here, digits), _number(there, digits)
    if a is None or b is None:
        return None
    gap = abs(a - b)
    if not _alike(a, b, digits) and gap <= _rounding(digits):
        a, b = _number(here, 3 * digits), _number(there, 3 * digits)
        if abs(a - b) <= gap * _rounding(digits):  # it shrinks as precision grows: a sum that cancels to nothing
            return b, b, digits
    return a, b, digits


def _under_roots(value: Any) -> set[Any]:
    """What stands under roots of even or broken degree and in logarithms, but for what a sum runs over."""
    from sympy import Pow, log, preorder_traversal

    nodes = [
        node.args[0]
        for node in preorder_traversal(value)
        if isinstance(node, log) or (isinstance(node, Pow) and not node.exp.is_integer)
    ]
    return {inner for inner in nodes if inner.free_symbols and inner.free_symbols <= value.free_symbols}


def _defined(roots: set[Any], at: dict[Any, Any]) -> bool:
    """Is everything under a root at least zero at a point? `\\sqrt{x}\\sqrt{y}` says that x and y are not negative."""
    return all(size >= 0 for root in roots if (size := root.xreplace(at).evalf(15)).is_real)


def _number(value: Any, digits: int) -> Any:
    """The finite number that a constant is, to so many digits; null if it is none."""
    value = value if value.is_Rational else value.doit().evalf(digits, maxn=3 * digits)
    parts = value.as_real_imag() if value.is_number else ()
    return value if parts and all(part.is_Float or part.is_Rational for part in parts) else None


def _is_real(value: Any, digits: int) -> bool:
    return bool(abs(value.as_real_imag()[1]) <= _rounding(digits) * (1 + abs(value)))


def _alike(a: Any, b: Any, digits: int) -> bool:
    """Do two values agree to all the digits that they have (0: exactly)? Relative to the values, however small."""
    return bool(abs(a - b) <= (_rounding(digits) * max(abs(a), abs(b)) if digits else 0))


def _rounding(digits: int) -> Any:
    """What rounding at so many digits may leave of 1."""
    from sympy import Rational

    return Rational(1, 10 ** (digits - GUARD_DIGITS // 3)) if digits else Rational(0)


def _cancel(prediction: Any, gold: Any) -> bool:
    """Is the difference zero by algebra alone? For sums and functions that have no value at a point.

    Errors: Undecided if the difference is neither zero nor a number.
    """
    from sympy import simplify

    difference = simplify(prediction.doit() - gold.doit())
    if difference == 0:
        return True
    if difference.is_number and not difference.has(*_unevaluated()):
        return False
    raise Undecided(f"the difference {difference} does not simplify to a number"[:200])


def _unevaluated() -> tuple[type, ...]:
    from sympy import Derivative, Integral, Limit, Product, Sum

    return Derivative, Integral, Limit, Product, Sum


def _same_relation(prediction: Any, gold: Any) -> bool:
    """Do two relations say the same: sides that differ by a constant factor, or equations with the same solutions?"""
    from sympy import Eq, Expr, Ne

    if not all(isinstance(side, Expr) for side in (*prediction.args, *gold.args)):
        alike = prediction.rel_op == gold.rel_op
        return alike and all(same_values(a, b) for a, b in zip(prediction.args, gold.args, strict=True))
    sides = prediction.lhs - prediction.rhs, gold.lhs - gold.rhs
    factor = _factor(_values(*sides, until=lambda found: _factor([found[0], found[-1]]) is None))
    if factor is None:
        return isinstance(gold, Eq) and isinstance(prediction, Eq) and _same_solutions(prediction, gold)
    turned = prediction if isinstance(gold, Eq | Ne) or not factor.is_negative else prediction.reversed
    return turned.rel_op == gold.rel_op


def _factor(values: list[Values]) -> Any:
    """What the first values are of the second ones, if it is the same everywhere; null otherwise."""
    if any(a == 0 or b == 0 for a, b, _ in values):
        return None
    ratios = [(a / b, digits) for a, b, digits in values]
    factor, _ = ratios[0]
    return factor if all(_alike(ratio, factor, digits) for ratio, digits in ratios) else None


def _same_solutions(prediction: Any, gold: Any) -> bool:
    """Have two equations the same solutions for every variable? Half a circle has fewer than the circle."""
    from sympy import solve

    names = prediction.free_symbols
    if not names or names != gold.free_symbols:
        return False
    differences = prediction.lhs - prediction.rhs, gold.lhs - gold.rhs
    for name in sorted(names, key=lambda n: (not all(d.is_polynomial(n) for d in differences), str(n))):
        want, got = (solve(equation, name, simplify=False) for equation in (gold, prediction))
        if not want or len(got) != len(want) or not all(any(same_values(g, w) for w in want) for g in got):
            return False
    return True
