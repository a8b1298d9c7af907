"""Overview: runs with their states and spending, and the DAG behind the chosen report."""

from __future__ import annotations

import pyarrow as pa
import streamlit as st

from dashboards.pages.parts import chosen, figure, root, table
from storage.errors import UserError
from storage.looks import artifacts, manifest
from storage.runs import all_runs, runs_table
from storage.spending import spending_by_arm
from storage.sql import named, query

REFRESH_SECONDS = 5
LOOKS = {"made": "#009E73", "reused": "#56B4E9", "kept": "#8A929B"}


def page() -> None:
    _runs()
    report = chosen()
    if report is None:
        return
    figure("Result", "report_summary", ("final", "trainings", "bands"))
    _dag(report.ref)
    _spending(report.ref)


@st.fragment(run_every=REFRESH_SECONDS)
def _runs() -> None:
    runs = runs_table(root())
    st.subheader("Runs", anchor="runs")
    if runs.num_rows == 0:
        st.caption("No run has been recorded beside this store.")
    else:
        table(query("select id, profile, state, why, at, stages_done, stages, tokens, gpu_hours, usd, started, report"
                    " from runs order by started desc", runs=runs))  # fmt: skip


def _dag(report: str) -> None:
    st.subheader("How it was made", anchor="dag")
    rows = query(named("app_lineage"), {"report": report}, artifacts=artifacts(root())).to_pylist()
    started = {run.report: run.started for run in all_runs(root())}.get(report)
    counts = {word: sum(_state(row, started) == word for row in rows) for word in LOOKS}
    words = {"made": "made by this run", "reused": "reused", "kept": "in the store"}
    st.caption(
        " · ".join(f"{n} {words[word]}" for word, n in counts.items() if n)
        + f" · {sum(row['seconds'] for row in rows):,.0f} s, {sum(row['bytes'] for row in rows) / 1e6:,.1f} MB"
    )
    st.graphviz_chart(_dot(rows, started), width="stretch")
    with st.expander("Artifacts"):
        table(pa.Table.from_pylist(rows))


def _state(row: dict[str, object], started: str | None) -> str:
    if started is None:
        return "kept"
    return "made" if str(row["created"]) >= started else "reused"


def _dot(rows: list[dict[str, object]], started: str | None) -> str:
    """The DAG in DOT. Labels are kinds, arms and numbers: nothing that a model wrote."""
    lines = ["digraph { rankdir=LR; bgcolor=transparent; node [shape=box style=filled fontname=Helvetica fontsize=11"
             ' fontcolor=white color=transparent]; edge [color="#8A929B" arrowsize=0.6];']  # fmt: skip
    for row in rows:
        colour = LOOKS[_state(row, started)]
        label = f"{_label(str(row['ref']), str(row['kind']))}\\n{row['rows']:,} rows"
        lines.append(f'"{row["ref"]}" [label="{label}" fillcolor="{colour}"];')
        inputs = row["inputs"]
        assert isinstance(inputs, list)
        lines += [f'"{source}" -> "{row["ref"]}";' for source in dict.fromkeys(inputs)]
    return "\n".join([*lines, "}"])


@st.cache_data(max_entries=5000)
def _label(ref: str, kind: str) -> str:
    """An artifact never changes, so neither does its label."""
    try:
        given = manifest(root(), ref).recipe.arguments
    except UserError:
        return kind
    policy = given.get("policy") or given.get("start") or given.get("base")
    if not isinstance(policy, dict):
        return kind
    step = f" step {policy['step']}" if policy.get("step") else ""
    return f"{kind}\\n{policy.get('arm', '')}{step}"


def _spending(report: str) -> None:
    run = next((run.id for run in all_runs(root()) if run.report == report), None)
    st.subheader("Spending", anchor="spending")
    spent = spending_by_arm(root(), run) if run else None
    if spent is not None and spent.num_rows:
        table(spent)
    else:
        figure("By purpose", "report_spending", ("screenings", "evaluations", "final", "trainings"))
