"""Registry of standard measures: tables that every study makes and that only the report's queries read. Each measure is
declared beside its computation.

A printed measure is two files: `<name>.py` in this folder (columns, table, stage) and
`storage/reading/queries/report_<name>.sql` (figure and query). No other file needs to name a standard measure.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import tasks.measures as room
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import ON_REQUEST
from tasks.evidence import Available
from tasks.stage import Stage

P = ParamSpec("P")
K = TypeVar("K", bound=Ref)


@dataclass(frozen=True, slots=True)
class _Standard:
    stage: Stage[..., Any]
    taken: Mapping[str, str]  # argument → field of Available
    needs: Sequence[str]


_STANDARD: dict[str, _Standard] = {}


def standard_measure(name: str, *, needs: Sequence[str] = (), **taken: str) -> Callable[[Stage[P, K]], Stage[P, K]]:
    """Register this stage as a standard measure; every study makes its artifact, and queries read it as `name`. The
    arguments are filled from the fields of Available with the same names; other arguments keep their defaults. taken:
    argument → field, if the names differ. needs: fields; the measure is skipped if one of them is empty."""

    def declare(stage: Stage[P, K]) -> Stage[P, K]:
        named = {argument: taken.get(argument, argument) for argument in inspect.signature(stage.function).parameters}
        known = {field.name for field in fields(Available)}
        _STANDARD[name] = _Standard(stage, {one: field for one, field in named.items() if field in known}, needs)
        return stage

    return declare


def names_of_measures() -> set[str]:
    """Return the names of all standard measures."""
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        import_module(module.name)
    return set(_STANDARD)


def standard_measures(available: Available, chosen: Sequence[str] = ()) -> dict[str, Ref]:
    """Return the standard measures of the available artifacts, by name. chosen: names of the measures to make, besides
    those that the study's other settings require; empty: all."""
    names_of_measures()
    return {
        name: measure.stage(**{argument: getattr(available, field) for argument, field in measure.taken.items()})
        for name, measure in sorted(_STANDARD.items())
        if (not chosen or name in {*chosen, *ON_REQUEST}) and all(getattr(available, field) for field in measure.needs)
    }
