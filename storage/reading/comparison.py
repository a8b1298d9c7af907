"""Two reports of one root side by side: the settings in which they differ, and their accuracy, paired by problem."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.query_cache import ask, report_arguments, reports
from storage.sql import named, query


def settings_apart(root: Path, one: str, other: str) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by path; None if one of the reports lacks the setting."""
    left, right = (_settings(root, ref) for ref in (one, other))
    paths = sorted({*left, *right})
    return {path: (left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)}


def _settings(root: Path, report: str) -> dict[str, Any]:
    arguments = report_arguments(Store(root).manifest(Ref.parse(report)).recipe)
    return {"profile": arguments.profile, "base model": arguments.model, **_flat(tomllib.loads(arguments.settings))}


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{within}{name}.") if isinstance(value, Mapping) else {f"{within}{name}": value}
    return found


def figures_beside(root: Path, one: str, other: str) -> pa.Table:
    """Return a row for each arm and phase (before, after training): variance band and accuracy of both reports, and the
    difference with its interval, or the reason for none."""
    paired = ask(root, one, "app_compare", other=other)
    left, right = (ask(root, ref, "report_summary") for ref in (one, other))
    return query(named("app_compare_figures"), l=left, r=right, paired=paired)


def names_of(root: Path, one: str, other: str) -> tuple[str, str]:
    """Return the names of two reports' studies; the refs of the reports if both studies have one name."""
    studies = {report.ref: report.profile for report in reports(root)}
    return (one, other) if studies[one] == studies[other] else (studies[one], studies[other])


def sentences(rows: pa.Table, one: str, other: str) -> list[str]:
    """Return the differences of accuracy as text. rows: of the query app_compare, or of figures_beside. one, other: as
    from names_of.

    >>> row = {"arm": "panel", "phase": "before", "difference_pp": -0.289, "difference_pp_low": -0.426}
    >>> sentences(pa.Table.from_pylist([row | {"difference_pp_high": -0.152}]), "cold", "hot")
    ['panel, untrained, solves 28.9 points less in hot than in cold (95 % interval −42.6 to −15.2).']
    """
    found = []
    for row in rows.to_pylist():
        middle, low, high = (row[f"difference_pp{end}"] for end in ("", "_low", "_high"))
        if low is None:
            continue
        ends = " to ".join(f"{100 * end:+.1f}".replace("-", "−") for end in (low, high))
        undecided = "Undecided: " if low <= 0 <= high else ""
        who = f"{row['arm']}, {'untrained' if row['phase'] == 'before' else 'trained'},"
        points = f"{abs(100 * middle):.1f} points {'less' if middle < 0 else 'more'}"
        found.append(f"{undecided}{who} solves {points} in {other} than in {one} (95 % interval {ends}).")
    return found
