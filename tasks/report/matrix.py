"""A matrix of studies that differ in one value. A report's first screen also shows the answers for the other values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.reading.figures import Chart, Figure, without
from storage.reading.query_cache import report_inputs
from storage.reading.views import helper_tables, inputs_of, views
from tasks.report.findings import Row, listed
from tasks.report.headline import Headline
from tasks.stage import store

#: (figure of the answer, whether the study trains) → what a difference of two arms means.
VERBS = {("answer_gain", True): "gained more than", ("answer_gain", False): "solves more than"}
VERBS |= {("answer_width", False): "is wider than"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the matrix, such as `temperature 0.7`, with the rows of the query that answers its study."""

    name: str
    rows: tuple[Row, ...]


def values_of(figure: Figure, own: str, rows: pa.Table, beside: Sequence[str], arms: Sequence[str]) -> list[Value]:
    """Return the values of a study's matrix, smallest first. own: the value of this report. rows: those of its answer.
    beside: `VALUE REPORT` for each other value. arms: two."""
    found = {own: rows}
    for name, _, report in (one.rpartition(" ") for one in beside):
        if (there := _rows(figure, Ref.parse(report), arms)) is not None:
            found[name] = there
    return [Value(name.replace("=", " "), tuple(found[name].to_pylist())) for name in sorted(found, key=_order)]


def _order(name: str) -> tuple[float, str]:
    try:
        return float(name.rpartition("=")[2]), name
    except ValueError:
        return 0.0, name


def _rows(figure: Figure, report: Ref, arms: Sequence[str]) -> pa.Table | None:
    """Return the rows of another report's answer; None if it was deleted or has an older version."""
    try:
        refs = report_inputs(store().manifest(report).recipe)
        withheld = orjson.loads((store().files(report) / "answer.json").read_bytes()).get("withheld", ())
        with views(inputs_of(store(), refs), helper_tables(refs, arms)) as view:
            return without(view.ask(figure.query), withheld)
    except (OSError, UserError):
        return None


def chart_of(values: Sequence[Value], chart: Chart, arms: Sequence[str]) -> tuple[Chart, pa.Table]:
    """Return the chart of all values and its rows: one line for each value with both arms, and one for their
    difference, first arm minus second."""
    rows = [
        _turned(row, chart.y, arms[0]) | {"label": value.name}
        for value in values
        for row in value.rows
        if row["row"] != "seed"
    ]
    return replace(chart, y_name=f"{chart.y_name}: {arms[0]} − {arms[1]}"), pa.Table.from_pylist(rows)


def _turned(row: Row, y: str, first: str) -> Row:
    if row["row"] != "difference" or row["arm"] == first:
        return row
    low, high = row[f"{y}_low"], row[f"{y}_high"]
    ends = {f"{y}_low": None if high is None else -high, f"{y}_high": None if low is None else -low}
    return row | ends | {"arm": first, "other": row["arm"], y: -row[y]}


def at_all_values(
    first: Headline, values: Sequence[Value], own: str, y: str, verb: str, arms: Sequence[str]
) -> Headline:
    """Return the headline with the verdict over all values first, and then that of this report's value. y: column of
    the difference. verb: what it means, such as `is wider than`."""
    pairs = [
        (value.name.rpartition(" ")[2], _turned(row, y, arms[0]))
        for value in values
        for row in value.rows
        if row["row"] == "difference" and row[f"{y}_low"] is not None
    ]
    if len(pairs) < 2 or first.verdict.startswith("Not compared"):
        return first
    groups = {
        f"{arms[0]} {verb} {arms[1]}": [name for name, row in pairs if row[f"{y}_low"] > 0],
        f"{arms[1]} {verb} {arms[0]}": [name for name, row in pairs if row[f"{y}_high"] < 0],
        "undecided": [name for name, row in pairs if row[f"{y}_low"] <= 0 <= row[f"{y}_high"]],
    }
    axis = own.partition("=")[0]
    parts = [
        f"{words} at {f'every {axis}:' if len(names) == len(pairs) else axis} {listed(names)}"
        for words, names in groups.items()
        if names
    ]
    verdict = f"{'; '.join(parts)}.".replace("undecided at", "Undecided at" if len(parts) == 1 else "undecided at")
    return replace(first, verdict=verdict, holds=f"At {own.replace('=', ' ')}: {first.verdict} {first.holds}")
