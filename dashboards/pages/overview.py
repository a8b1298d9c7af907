"""Overview: the answer of the chosen run, all runs with their states, and the DAG and spending behind the answer."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import streamlit as st

from dashboards.dag import boxes, counted, dot, state_of
from dashboards.pages.parts import chosen, root, show, table
from storage.reading.figures import FIGURES
from storage.reading.query_cache import descent, manifest
from storage.reading.recorded import answer_of, drift, listed_runs, run_of, spending_of

REFRESH_SECONDS = 5


def page() -> None:
    if (report := chosen()) is not None:
        st.subheader("The answer", anchor="answer")
        st.markdown(answer_of(root(), report.ref) or "This run's report has no page.")
        show(FIGURES["summary"])
    _runs()
    _drift()
    if report is not None:
        _dag(report.ref)
        _spending(report.ref)


@st.fragment(run_every=REFRESH_SECONDS)
def _runs() -> None:
    runs = listed_runs(root())
    st.subheader("Runs", anchor="runs")
    if runs.num_rows == 0:
        st.caption("No run has been recorded beside this store.")
    else:
        table(runs)


def _drift() -> None:
    notes = drift(root())
    if notes.num_rows:
        st.subheader("Drift", anchor="drift")
        st.caption("Figures that a nightly re-evaluation found outside their interval, open ones first.")
        table(notes)


def _dag(report: str) -> None:
    st.subheader("How it was made", anchor="dag")
    rows, run = descent(root(), report), run_of(root(), report)
    states = {row["ref"]: state_of(row["created"], run.started if run else None) for row in rows.to_pylist()}
    size = sum(rows["bytes"].to_pylist()) / 1e6
    st.caption(f"{counted(list(states.values()))} · {sum(rows['seconds'].to_pylist()):,.0f} s, {size:,.3g} MB")
    # at its own size, in which its labels can be read: a large one is wider than the page, and scrolls
    st.graphviz_chart(_drawn(root(), report, tuple(states.items())), width="content")
    with st.expander("Artifacts"):
        table(rows)


@lru_cache(maxsize=64)
def _drawn(where: Path, report: str, states: tuple[tuple[str, str], ...]) -> str:
    """Artifacts never change, so what they look like depends on which there are."""
    return dot(boxes(report, {ref: manifest(where, ref) for ref, _ in states}, dict(states)))


def _spending(report: str) -> None:
    spent = spending_of(root(), report)
    if spent is not None:
        st.subheader("Spending", anchor="spending")
        table(spent)
    else:
        show(FIGURES["spending"])
