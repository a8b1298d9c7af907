"""Search methods by their names in a profile, such as `majority`, or `majority:width=8` with parameters."""

import ast
from collections.abc import Mapping
from dataclasses import fields, replace

from storage.errors import UserError, did_you_mean
from tasks.domain.search.method import Method
from tasks.domain.search.revision import Debate, Evolution, PanelOfTraces, Refine, Revision
from tasks.domain.search.selection import (
    EarlyStopped,
    First,
    Likeliest,
    Majority,
    Rewarded,
    SelfCertainty,
    SelfScore,
    Shortest,
    WeightedMajority,
)
from tasks.domain.search.steps import DVTS, MCTS, Beam, Particles

#: The method that every study has. Others share its rollouts, and pass@1 and the oracle are computed from them.
BASE = "first"
METHODS: Mapping[str, Method] = {
    BASE: First(),
    "likeliest": Likeliest(),
    "shortest": Shortest(),
    "self_certainty": SelfCertainty(),
    "self_score": SelfScore(),
    "rewarded": Rewarded(),
    "majority": Majority(),
    "weighted_by_likelihood": WeightedMajority(by="likelihood"),
    "weighted_by_length": WeightedMajority(by="length"),
    "early_stopped": EarlyStopped(),
    "revision": Revision(),
    "refine": Refine(),
    "panel_of_traces": PanelOfTraces(),
    "debate": Debate(),
    "evolution": Evolution(),
    "beam": Beam(),
    "dvts": DVTS(),
    "particles": Particles(),
    "mcts": MCTS(),
}


def with_base(methods: Mapping[str, Method]) -> dict[str, Method]:
    """Add the base method `first`, which is as wide as the widest method, so that the oracle sees all rollouts.

    >>> list(with_base({"majority": Majority()})), list(with_base({"majority:width=32": Majority(width=32)}))
    (['first', 'majority'], ['first:width=32', 'majority:width=32'])
    """
    if not methods:
        return {}
    widths = [method.width for method in methods.values() if isinstance(method, First)] or [First().width]
    others = {name: method for name, method in methods.items() if not isinstance(method, First)}
    base = First(width=max(*widths, *(method.most[0] for method in others.values()), 1))
    return {BASE if base == METHODS[BASE] else f"{BASE}:width={base.width}": base, **others}


def method_named(text: str) -> Method:
    """Return a method by its name and parameters. Raise UserError for an unknown method or parameter.

    >>> method_named("majority:width=8")
    Majority(width=8)
    """
    name, *settings = text.split(":")
    if name not in METHODS:
        raise UserError(f"unknown method '{name}'{did_you_mean(name, METHODS)} (known: {', '.join(METHODS)})")
    method, given = METHODS[name], {}
    known = [f.name for f in fields(method)]  # type: ignore[arg-type]
    for setting in settings:
        field, _, value = setting.partition("=")
        if field not in known:
            raise UserError(f"method {name}: no parameter '{field}' (known: {', '.join(known)})")
        try:
            given[field] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            given[field] = value
    try:
        return replace(method, **given)  # type: ignore[type-var]
    except UserError as error:
        raise UserError(f"method {name}: {error}") from None
