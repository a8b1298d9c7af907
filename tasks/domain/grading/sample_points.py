"""Points at which two formulas are compared: of both signs, below and above 1; whole and large where steps are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

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
    for number in range(len(POINTS)):
        yield {name: _coordinate(str(name), number) for name in names}
    if not any(_has_steps(formula) for formula in formulas):
        return
    for number in range(1, WHOLE_POINTS + 1):
        yield {name: _whole(str(name), number, first=name == names[0]) for name in names}
    for size in (*LARGE, 10 * _largest(formulas)):
        for number, sign in enumerate((1, -1, 0, 0)):
            yield {name: size * _coordinate(f"{name}:{size}", number, sign) for name in names}


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
