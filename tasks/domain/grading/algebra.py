r"""Equality of two parsed values, without rounding: exact arithmetic, and identities tested at fixed points.

Two expressions are equal if their values agree at every point where both are real (everywhere, if they are nowhere
real), to `GUARD_DIGITS` more digits than the numbers in them have. Constants are such expressions with no variables;
rational values are compared exactly. May take for ever: workers only.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Any

from tasks.domain.grading.terms import Undecided, terminates

GUARD_DIGITS = 60
#: An expression whose numbers have more digits than this is compared as a rational or not at all.
MAX_DIGITS = 20_000
#: Sign and magnitude of the variables at each point: below 1 and above, alike and mixed.
POINTS = ((1, 0), (1, 1), (-1, 0), (-1, 1), (0, 0), (0, 1), (0, 0), (0, 1))


def same_values(prediction: Any, gold: Any) -> bool:
    """Is one parsed value the other? Expressions, equations and inequalities; anything else only if written alike.

    Errors: Undecided where neither numbers nor algebra can tell.
    """
    from sympy import Expr, MatrixBase, MatrixExpr
    from sympy.core.relational import Relational

    if prediction == gold:
        return True
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
        return all(abs(a - b) <= _slack(a, b, digits) for a, b, digits in _values(prediction, gold))
    except Undecided:
        return _cancel(prediction, gold)


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


def _values(prediction: Any, gold: Any) -> list[tuple[Any, Any, int]]:
    """(value of the prediction, of the gold, digits they have), point by point. `f(2)` of an unknown f is a variable.

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
    if one.is_Rational and other.is_Rational:
        return [(one, other, 0)]
    digits = GUARD_DIGITS + _digits(one) + _digits(other)
    if digits > MAX_DIGITS:
        raise Undecided(f"numbers of more than {MAX_DIGITS:,} digits")
    found = []
    for number in range(len(POINTS) if names else 1):
        at = {name: _coordinate(str(name), number) for name in names}
        a, b = _number(one.xreplace(at), digits), _number(other.xreplace(at), digits)
        if a is not None and b is not None:
            found.append((at, a, b))
    if not found:
        raise Undecided("no value at any point")
    roots = _under_roots(one) | _under_roots(other)
    real = [(a, b, digits) for at, a, b in found if _is_real(a, digits) and _is_real(b, digits) and _defined(roots, at)]
    return real or [(a, b, digits) for _, a, b in found]


def _under_roots(value: Any) -> set[Any]:
    """What stands under roots of even or broken degree and in logarithms."""
    from sympy import Pow, log, preorder_traversal

    nodes = [
        node.args[0]
        for node in preorder_traversal(value)
        if isinstance(node, log) or (isinstance(node, Pow) and not node.exp.is_integer)
    ]
    return {inner for inner in nodes if inner.free_symbols}


def _defined(roots: set[Any], at: dict[Any, Any]) -> bool:
    """Is everything under a root at least zero at a point? `\\sqrt{x}\\sqrt{y}` says that x and y are not negative."""
    return all(size >= 0 for root in roots if (size := root.xreplace(at).evalf(15)).is_real)


def _coordinate(name: str, number: int) -> Any:
    """A rational that depends on the name and the point alone."""
    from sympy import Rational

    sign, large = POINTS[number]
    digest = hashlib.sha256(f"{name}:{number}".encode()).digest()
    size = Rational(int.from_bytes(digest[:2]) % 997 + 2, 1009)
    return (sign or (1 if digest[2] % 2 else -1)) * (1 + 3 * size if large else size)


def _digits(value: Any) -> int:
    """An estimate from above of how many decimal digits the numbers of an expression have, powers multiplied out.

    A function of a tiny number leaves as much as its square (`1-\\cos x` is x²/2), a hyperbolic one its exponential.
    """
    from sympy import Function, Pow, Rational, exp, preorder_traversal
    from sympy.functions.elementary.hyperbolic import HyperbolicFunction

    total = 0.0
    for node in preorder_traversal(value):
        if isinstance(node, Rational):
            total += (int(node.p).bit_length() + int(node.q).bit_length()) * math.log10(2)
        elif isinstance(node, Pow | exp):
            base, power = node.as_base_exp()
            if base.is_number and power.is_number:
                total += min(_size(power) * (1 + abs(math.log10(_size(base)))), 2.0 * MAX_DIGITS)
        elif isinstance(node, Function) and len(node.args) == 1 and node.args[0].is_number:
            size = _size(node.args[0])
            total += min(size if isinstance(node, HyperbolicFunction) else 0, MAX_DIGITS) + 2 * abs(math.log10(size))
    return int(total)


def _size(value: Any) -> float:
    """The magnitude of a constant, as far as floating point goes."""
    return min(max(float(abs(value.evalf(5))), 1e-300), 1e300)


def _number(value: Any, digits: int) -> Any:
    """The finite number that a constant is, to so many digits; null if it is none."""
    value = value if value.is_Rational else value.doit().evalf(digits, maxn=3 * digits)
    parts = value.as_real_imag() if value.is_number else ()
    return value if parts and all(part.is_Float or part.is_Rational for part in parts) else None


def _is_real(value: Any, digits: int) -> bool:
    return value is not None and bool(abs(value.as_real_imag()[1]) <= _slack(value, value, digits))


def _slack(a: Any, b: Any, digits: int) -> Any:
    """What rounding at so many digits may leave: relative to the values, or of a sum that cancels to nothing."""
    from sympy import Rational

    if not digits:
        return Rational(0)
    return Rational(1, 10 ** (digits - GUARD_DIGITS // 3)) * (1 + max(abs(a), abs(b)))


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
    factor = _factor(_values(prediction.lhs - prediction.rhs, gold.lhs - gold.rhs))
    if factor is None:
        return isinstance(gold, Eq) and isinstance(prediction, Eq) and _same_solutions(prediction, gold)
    turned = prediction if isinstance(gold, Eq | Ne) or not factor.is_negative else prediction.reversed
    return turned.rel_op == gold.rel_op


def _factor(values: list[tuple[Any, Any, int]]) -> Any:
    """What the first values are of the second ones, if it is the same everywhere; null otherwise."""
    if any(a == 0 or b == 0 for a, b, _ in values):
        return None
    ratios = [(a / b, digits) for a, b, digits in values]
    factor, _ = ratios[0]
    return factor if all(abs(ratio - factor) <= _slack(ratio, factor, digits) for ratio, digits in ratios) else None


def _same_solutions(prediction: Any, gold: Any) -> bool:
    """Have two equations the same solutions for every variable? Half a circle has fewer than the circle."""
    from sympy import solve

    names = prediction.free_symbols
    if not names or names != gold.free_symbols:
        return False
    found = [(solve(prediction, name), solve(gold, name)) for name in sorted(names, key=str)]
    alike = [len(got) == len(want) and all(any(same_values(g, w) for w in want) for g in got) for got, want in found]
    return all(want for _, want in found) and all(alike)
