"""How many digits two formulas must be evaluated to, so that what differs is seen to differ."""

from __future__ import annotations

import math
from typing import Any

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
