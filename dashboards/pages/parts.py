"""What every page is made of: the store that is looked at, the run that is chosen, a figure with its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards.text import literal
from storage.errors import UserError
from storage.reading.charts import drawn
from storage.reading.figures import Figure, Section, is_gain, is_p_value, is_share
from storage.reading.query_cache import Report, ask, reports, sources


def root() -> Path:
    return Path(os.environ.get("VARBAND_ROOT", ".varband"))


def chosen() -> Report | None:
    """The run in the sidebar; null, with a kind word, where the store has no report."""
    found = {report.ref: report for report in reports(root())}
    if not found:
        st.info(
            f"No finished run under `{root()}` yet. `varband run demo` makes one in a few minutes; a run that is going"
            " shows on Overview and Training."
        )
        return None
    return found.get(st.session_state.get("run", ""), next(iter(found.values())))


def remember(**parameters: str | None) -> None:
    """Put what is looked at into the address, so that it can be shared. Null removes."""
    for name, value in parameters.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value


def rows_of(query: str, parameters: dict[str, object] | None = None, other: str | None = None) -> pa.Table | None:
    """Rows of a named query over the chosen run; null, with the reason on the page, where it cannot be answered."""
    report = chosen()
    if report is None:
        return None
    try:
        return ask(root(), report.ref, query, parameters, other)
    except UserError as error:
        st.warning(str(error))
        return None


def show(figure: Figure, *, write: Callable[[pa.Table], None] | None = None) -> None:
    """A figure as it is declared: its charts over its table, with the query and the artifacts that it came from.
    write: what shows the rows where a table would not do."""
    report = chosen()
    if report is None:
        return
    st.subheader(figure.title, anchor=figure.query)
    if figure.caption:
        st.caption(literal(figure.caption))
    if not sources(root(), report.ref, figure.sources[:1]):
        st.info(figure.without_artifact(report.measures))
        return
    rows = rows_of(figure.query)
    if rows is None:
        return
    if rows.num_rows == 0:
        st.info(figure.without_rows)
    else:
        specs = drawn(figure.chart, rows, report.arms)
        for spec in specs:
            st.vega_lite_chart(spec, width="stretch")
        with st.expander("Its numbers") if specs else nullcontext():
            (write or table)(rows)
    refs = sources(root(), report.ref, figure.sources)
    more = f" and {len(refs) - 4} more" if len(refs) > 4 else ""
    st.caption(f"query `{figure.query}` of {', '.join(f'`{ref}`' for ref in refs[:4])}{more}")


def show_section(section: Section) -> None:
    """Its figures; those that this run has nothing for are named at the end."""
    report = chosen()
    if report is None:
        return
    there = {f.name: bool(sources(root(), report.ref, f.sources[:1])) for f in section.figures}
    for figure in section.figures:
        if there[figure.name]:
            show(figure)
    lacking = [f for f in section.figures if not there[f.name]]
    if lacking:
        made_from = ", ".join(dict.fromkeys(f.sources[0] for f in lacking))
        st.info(f"Not in this run, which holds no {made_from}: {', '.join(f.title for f in lacking)}.")


def table(rows: pa.Table) -> None:
    """A table without the columns that hold nothing; headings in words, shares in percent, both ends of an interval in
    one cell, a dash for what is not known."""
    known = without_empty(rows)
    kept = with_intervals(known.select([n for n in known.column_names if known[n].null_count < known.num_rows]))
    number = st.column_config.NumberColumn
    config: dict[str, Any] = {}
    for field in kept.schema:
        words = field.name.replace("_", " ")
        if _in_percent(field.name) and not pa.types.is_string(field.type):
            config[field.name] = number(words, format="percent")
        elif is_p_value(field.name):
            config[field.name] = number(words, format="%.2g")
        elif field.name.endswith("_interval"):
            config[field.name] = st.column_config.TextColumn("95 %")
        elif field.name in ("seed", "step", "other_step"):
            config[field.name] = number(words, format="%d")
        elif pa.types.is_integer(field.type):
            config[field.name] = number(words, format="localized")
        else:
            config[field.name] = st.column_config.Column(words)
    st.dataframe(kept, hide_index=True, width="stretch", column_config=config, placeholder="–")


def without_empty(rows: pa.Table) -> pa.Table:
    """Text that says nothing is null.

    >>> without_empty(pa.table({"why": ["", "full"], "n": [0, 1]})).to_pylist()
    [{'why': None, 'n': 0}, {'why': 'full', 'n': 1}]
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            texts = [text or None for text in rows[field.name].to_pylist()]
            rows = rows.set_column(place, field.name, pa.array(texts, field.type))
    return rows


def with_intervals(rows: pa.Table) -> pa.Table:
    """`x_low` and `x_high` become one column of text, `x_interval`, after `x`.

    >>> with_intervals(pa.table({"gain": [0.25], "gain_low": [0.1], "gain_high": [0.4]})).to_pylist()
    [{'gain': 0.25, 'gain_interval': '[10.0, 40.0] %'}]
    """
    shown: dict[str, Any] = {}
    for name in rows.column_names:
        base = name.removesuffix("_low").removesuffix("_high")
        if base == name or not {base, f"{base}_low", f"{base}_high"} <= set(rows.column_names):
            shown[name] = rows[name]
        elif name.endswith("_low"):
            ends = zip(rows[name].to_pylist(), rows[f"{base}_high"].to_pylist(), strict=True)
            shown[f"{base}_interval"] = pa.array([_interval(low, high, _in_percent(base)) for low, high in ends])
    return pa.table(shown)


def _interval(low: float | None, high: float | None, share: bool) -> str | None:
    if low is None or high is None:
        return None
    low, high = low + 0.0, high + 0.0  # no negative zero
    return f"[{100 * low:.1f}, {100 * high:.1f}] %" if share else f"[{low:.3g}, {high:.3g}]"


def _in_percent(name: str) -> bool:
    return is_share(name) or is_gain(name)
