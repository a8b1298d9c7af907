"""What every page is made of: the store that is looked at, the run that is chosen, a figure with its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards.charts import Spec
from storage.errors import UserError
from storage.looks import Report, ask, reports, sources

#: A cell longer than this is cut in tables; the Traces page shows whole texts.
MAX_CHARS = 300


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


def figure(
    title: str, query: str, inputs: tuple[str, ...], chart: Callable[[pa.Table], Spec | None] | None = None,
    *, caption: str = "", empty: str = "Nothing was measured here in this run.",
) -> None:  # fmt: skip
    """A chart over its table, with the query and the artifacts that it came from."""
    report = chosen()
    if report is None:
        return
    st.subheader(title, anchor=query)
    if caption:
        st.caption(caption)
    refs = sources(root(), report.ref, inputs)
    if not refs:
        st.info(f"{empty} (no {' and no '.join(inputs)})")
        return
    rows = rows_of(query)
    if rows is None:
        return
    if rows.num_rows == 0:
        st.info(empty)
    else:
        spec = chart(rows) if chart else None
        if spec:
            st.vega_lite_chart(spec, width="stretch")
            with st.expander("Its numbers"):
                table(rows)
        else:
            table(rows)
    more = f" and {len(refs) - 4} more" if len(refs) > 4 else ""
    st.caption(f"query `{query}` of {', '.join(f'`{ref}`' for ref in refs[:4])}{more}")


def table(rows: pa.Table) -> None:
    """A table without the columns that hold nothing; shares in percent."""
    kept = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
    shares = {name: st.column_config.NumberColumn(format="percent") for name in kept if is_share(name)}
    small = {name: st.column_config.NumberColumn(format="%.2g") for name in kept if is_p_value(name)}
    config: dict[str, Any] = {"seed": st.column_config.NumberColumn(format="%d"), **shares, **small}
    st.dataframe(rows.select(kept), hide_index=True, width="stretch", column_config=config)


def is_p_value(name: str) -> bool:
    return name.startswith("p_") or name.endswith("_p")


def is_share(name: str) -> bool:
    base = name.removesuffix("_low").removesuffix("_high")
    return base.endswith(("_rate", "_share")) or base in (
        "rate", "share", "pass_at_k", "truncated", "other_truncated", "heldout_before", "heldout_after", "gain",
        "coverage", "other_coverage", "correct_mean", "live_groups", "tag_valid_mean",
    )  # fmt: skip
