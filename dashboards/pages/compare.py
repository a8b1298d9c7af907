"""Compare: two runs, paired by problem, with intervals."""

from __future__ import annotations

import pyarrow as pa
import streamlit as st

from dashboards.pages.parts import chosen, remember, root, rows_of, table
from storage.errors import UserError
from storage.reading.charts import drawn
from storage.reading.figures import FIGURES
from storage.reading.query_cache import ask, reports, settings_apart


def page() -> None:
    report = chosen()
    if report is None:
        return
    others = {other.ref: other for other in reports(root()) if other.ref != report.ref}
    if not others:
        st.info("There is only one finished run in this store; a second one can be compared with it.")
        return
    refs = list(others)
    asked = st.query_params.get("other")
    index = refs.index(asked) if asked in others else 0
    other = st.selectbox("Against", refs, index=index, format_func=lambda ref: others[ref].label)
    remember(other=other)
    _settings(report.ref, other)
    rows = rows_of("app_compare", other=other)
    if rows is None:
        return
    if rows.num_rows == 0:
        st.info("The two runs have no held-out problem and arm in common, so nothing can be paired.")
        return
    st.subheader("Held-out accuracy, paired by problem", anchor=False)
    st.caption(f"difference_pp: `{other}` minus `{report.ref}`, mean over problems; 95 % over problems.")
    table(rows)
    known = [row for row in rows.to_pylist() if row["difference_pp_low"] is not None]
    unclear = [
        f"{row['arm']} {row['phase']}" for row in known if row["difference_pp_low"] <= 0 <= row["difference_pp_high"]
    ]
    if unclear:
        st.caption(f"Intervals that contain zero: {', '.join(unclear)}.")
    first, second = rows_of(FIGURES["passk"].query), _passk_of(other)
    if first is not None and second is not None and first.num_rows and second.num_rows:
        left, right = st.columns(2)
        for column, title, some in ((left, report.label, first), (right, others[other].label, second)):
            with column:
                st.caption(title)
                for spec in drawn(FIGURES["passk"].chart, some, report.arms):
                    st.vega_lite_chart(spec, width="stretch")
    differing = rows_of("app_compare_problems", other=other)
    if differing is not None and differing.num_rows:
        st.subheader("Problems that differ most", anchor=False)
        table(differing)


def _settings(report: str, other: str) -> None:
    try:
        apart = settings_apart(root(), report, other)
    except UserError as error:
        st.warning(str(error))
        return
    st.subheader("What was asked otherwise", anchor=False)
    if apart:
        told = [[path, *("–" if v is None else str(v) for v in values)] for path, values in apart.items()]
        columns = zip(("setting", "here", "there"), zip(*told, strict=True), strict=True)
        table(pa.table({name: list(values) for name, values in columns}))
    else:
        st.caption("No setting differs.")


def _passk_of(other: str) -> pa.Table | None:
    try:
        return ask(root(), other, FIGURES["passk"].query)
    except UserError as error:
        st.warning(str(error))
        return None
