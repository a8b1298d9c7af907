"""Parts of all pages: the store, the chosen run, a figure with its source, a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards.text import literal
from storage.errors import UserError
from storage.reading.charts import specs_of
from storage.reading.figures import Figure, Section, is_gain, is_p_value, is_share, without
from storage.reading.query_cache import Report, ask, reports, sources


def root() -> Path:
    return Path(os.environ.get("VARBAND_ROOT", ".varband"))


def chosen() -> Report | None:
    """Return the run that is chosen in the sidebar. If the store has no report, return None and show a message."""
    found = {report.ref: report for report in reports(root())}
    if not found:
        st.info(
            f"No finished run under `{root()}` yet. `varband run demo` makes one in a few minutes. Overview and"
            " Training show unfinished runs."
        )
        return None
    return found.get(st.session_state.get("run", ""), next(iter(found.values())))


def remember(**parameters: object) -> None:
    """Write the state of the page into its URL, so that it can be shared. A parameter that is None is removed."""
    for name, value in parameters.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != str(value):
            st.query_params[name] = str(value)


def selected(label: str, options: list[Any], name: str, first: int | None = 0, **more: Any) -> Any:
    """Return the choice in a select box. The first choice is the value of `name` in the URL, or else `first`."""
    wanted = st.query_params.get(name)
    return st.selectbox(label, options, index=options.index(wanted) if wanted in options else first, **more)


def rows_of(report: str, query: str, parameters: dict[str, object] | None = None) -> pa.Table:
    """Return the rows of a named query over a run. If the query fails, return none and show the reason."""
    try:
        return ask(root(), report, query, parameters)
    except UserError as error:
        st.warning(str(error))
        return pa.table({})


def has(report: Report, figure: Figure) -> bool:
    """Return whether the run has the artifact that a figure requires."""
    return bool(sources(root(), report.ref, figure.sources[:1]))


def show(figure: Figure, write: Callable[[pa.Table], None] | None = None, withheld: Sequence[str] = ()) -> None:
    """Show a figure: its charts, its table, and the query and artifacts behind it. write: shows the rows in place of a
    table. withheld: labels of rows of an answer to leave out."""
    report = chosen()
    if report is None:
        return
    st.subheader(figure.title, anchor=figure.query)
    if not has(report, figure):
        st.info(figure.without_artifact(report.measures))
        return
    try:
        rows = without(ask(root(), report.ref, figure.query), withheld)
    except UserError as error:
        st.warning(str(error))
        return
    if caption := figure.explained(rows.to_pylist() if figure.legend else ()):
        st.caption(literal(caption))
    if rows.num_rows == 0:
        st.info(figure.without_rows)
    else:
        specs = specs_of(figure.chart, rows, report.arms)
        plot(specs)
        with st.expander("Its numbers") if specs else nullcontext():
            (write or table)(rows)
    refs = sources(root(), report.ref, figure.sources)
    more = f" and {len(refs) - 4} more" if len(refs) > 4 else ""
    st.caption(f"query `{figure.query}` of {', '.join(f'`{ref}`' for ref in refs[:4])}{more}")


def plot(specs: list[dict[str, Any]]) -> None:
    for spec in specs:
        st.vega_lite_chart(spec, width="content" if "vconcat" in spec else "stretch")


def show_section(section: Section) -> None:
    """Show the figures of a section, and list those without data in this run."""
    report = chosen()
    if report is None:
        return
    lacking = []
    for figure in section.figures:
        if has(report, figure):
            show(figure)
        else:
            lacking.append(figure)
    if lacking:
        made_from = ", ".join(dict.fromkeys(f.sources[0] for f in lacking))
        st.info(f"Not in this run, which holds no {made_from}: {', '.join(f.title for f in lacking)}.")


def table(rows: pa.Table) -> None:
    """Show a table without empty columns: shares in percent, intervals in one cell, dashes for unknown values."""
    kept = columns_with_values(rows)
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


def columns_with_values(rows: pa.Table) -> pa.Table:
    """Return the columns that have values (empty text is none). `x_low` and `x_high` become one text, `x_interval`.

    >>> rows = {"why": ["", "full"], "gain": [0.25, 0.5], "gain_low": [0.1, None], "gain_high": [0.4, None]}
    >>> first, second = columns_with_values(pa.table({"none": [None, None], **rows})).to_pylist()
    >>> first, second["gain_interval"]
    ({'why': None, 'gain': 0.25, 'gain_interval': '[10.0, 40.0] %'}, None)
    """
    found: dict[str, Any] = {}
    for name in rows.column_names:
        base, column = name.removesuffix("_low").removesuffix("_high"), rows[name]
        if pa.types.is_string(column.type):
            column = pa.array([text or None for text in column.to_pylist()], column.type)
        if column.null_count == len(column):
            continue
        if base == name or not {base, f"{base}_low", f"{base}_high"} <= set(rows.column_names):
            found[name] = column
        elif name.endswith("_low"):
            form, scale = ("[{:.1f}, {:.1f}] %", 100) if _in_percent(base) else ("[{:.3g}, {:.3g}]", 1)
            ends = zip(column.to_pylist(), rows[f"{base}_high"].to_pylist(), strict=True)
            found[f"{base}_interval"] = [
                None if low is None or high is None else form.format(scale * low + 0.0, scale * high + 0.0)
                for low, high in ends
            ]
    return pa.table(found)


def _in_percent(name: str) -> bool:
    return is_share(name) or is_gain(name)
