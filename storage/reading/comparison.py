"""Two studies of one root side by side: what was asked otherwise, and what was found."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.query_cache import ask
from storage.reading.recipes import report_arguments
from storage.sql import query


def settings_apart(root: Path, one: str, other: str) -> dict[str, tuple[Any, Any]]:
    """Fields that differ, by path; null where one of the two has no such field."""
    left, right = (_settings(root, ref) for ref in (one, other))
    paths = sorted({*left, *right})
    return {path: (left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)}


def _settings(root: Path, report: str) -> dict[str, Any]:
    """None of a replay of published files: nothing was set."""
    recipe = Store(root).manifest(Ref.parse(report)).recipe
    if "profile" not in recipe.arguments:
        return {}
    told = report_arguments(recipe)
    return {"profile": told.profile, "stands on": told.model, **_flat(tomllib.loads(told.settings))}


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{within}{name}.") if isinstance(value, Mapping) else {f"{within}{name}": value}
    return found


def figures(root: Path, one: str, other: str) -> pa.Table:
    """A row for each arm and phase (before, after training) of either: problems in the variance band, accuracy, and
    where both were asked the same problems the difference with its interval, or the reason why it has none."""
    paired = ask(root, one, "app_compare", other=other)
    left, right = (ask(root, ref, "report_summary") for ref in (one, other))
    return query(
        """
        with tall as (
            select 1 as study, arm, unnest(['before', 'after']) as phase,
                unnest([heldout_before, heldout_after]) as accuracy, variance from l
            union all
            select 2, arm, unnest(['before', 'after']), unnest([heldout_before, heldout_after]), variance from r
        ),
        wide as (
            select arm, phase, avg(accuracy) filter (study = 1) as one, avg(accuracy) filter (study = 2) as other,
                any_value(variance) filter (study = 1) as in_band,
                any_value(variance) filter (study = 2) as in_band_other
            from tall group by all
        )
        select arm, phase, one, other, difference_pp, difference_pp_low, difference_pp_high, problems,
            in_band, in_band_other, reason
        from wide left join paired using (arm, phase)
        where one is not null or other is not null
        order by arm, phase desc
        """,
        l=left,
        r=right,
        paired=paired,
    )
