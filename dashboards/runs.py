"""Pages about runs. Overview: the answer, all runs, the artifacts behind the answer, and its cost. Training: trainings
that are running, and the steps of finished ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards.parts import chosen, plot, remember, root, rows_of, selected, show, show_section, table
from dashboards.text import literal
from storage.reading import recorded
from storage.reading.charts import lines
from storage.reading.figures import FIGURES, Chart, on_page
from storage.reading.query_cache import descent, reports

REFRESH_SECONDS = 3


def overview() -> None:
    report = chosen()
    if report is not None:
        st.subheader(literal(recorded.question_of(root(), report.ref) or "The answer"), anchor="answer")
        first = recorded.first_screen(root(), report.ref)
        if first:
            st.markdown(f"**{literal(first['verdict'])}**\n\n{literal(first['holds'])}")
        show(recorded.answering(root(), report.ref), withheld=first.get("withheld", ()))
        _tiles(first)
        with st.expander("In words"):
            st.markdown(recorded.in_words(root(), report.ref) or "This run's report has no page.")
        show(FIGURES["summary"])
    _runs()
    if (found := recorded.last_nights(root())).num_rows:
        st.subheader("Nights", anchor="nights")
        st.caption("The last nightly re-evaluation of every adapter, drifted ones first.")
        table(found)
    if report is None:
        return
    _artifacts(report.ref)
    if (spent := recorded.spending_of(root(), report.ref)) is not None:
        st.subheader("Spending", anchor="spending")
        table(spent)
    else:
        show(FIGURES["spending"])


def _tiles(first: Mapping[str, Any]) -> None:
    """Show the figures of a report's first screen side by side, and below them the sentence on the audit."""
    tiles = first.get("tiles", ())
    for column, tile in zip(st.columns(max(1, len(tiles))), tiles, strict=False):
        with column.container(border=True):
            st.caption(literal(tile["title"]))
            st.markdown("  \n".join(literal(f"{name} {text}") for name, text in tile["values"]))
            st.caption(literal(tile["words"]))
    if first.get("audit"):
        st.caption(literal(first["audit"]))


@st.fragment(run_every=REFRESH_SECONDS)
def _runs() -> None:
    listed = recorded.listed_runs(root())
    st.subheader("Runs", anchor="runs")
    if listed.num_rows == 0:
        st.caption("No run has been recorded beside this store.")
    else:
        table(listed)


def _artifacts(report: str) -> None:
    """Show how many of the artifacts behind the report its run made, and how many it reused."""
    st.subheader("How it was made", anchor="artifacts")
    rows, run = descent(root(), report), recorded.run_of(root(), report)
    made = [run is not None and created >= run.started for created in rows["created"].to_pylist()]
    parts = [f"{sum(made)} made by this run", f"{len(made) - sum(made)} reused"] if run else [f"{len(made)} artifacts"]
    size = sum(rows["bytes"].to_pylist()) / 1e6
    st.caption(f"{' · '.join(parts)} · {sum(rows['seconds'].to_pylist()):,.0f} s, {size:,.3g} MB")
    with st.expander("Artifacts"):
        table(rows)


def training() -> None:
    metric = selected("Metric", list(recorded.METRICS), "metric", format_func=lambda name: name.replace("_", " "))
    remember(metric=metric)
    _now(metric)
    report = chosen()
    if report is None:
        return
    found = {other.ref: other for other in reports(root())}
    over = st.multiselect("Runs", list(found), [report.ref], format_func=lambda ref: found[ref].label)
    tables = [(found[ref].label, rows_of(ref, "app_steps")) for ref in over]
    labelled = [t.append_column("line", pa.array([label] * len(t))) for label, t in tables if t.num_rows]
    if not labelled:
        st.info("Nothing was trained in these runs.")
    else:
        steps = pa.concat_tables(labelled, promote_options="default")
        st.subheader(metric.replace("_", " "), anchor="steps")
        _chart(steps, metric, report.arms, "line" if len(over) > 1 else "seed")
        st.caption(f"query `app_steps` of {len(set(steps['training'].to_pylist()))} trainings")
    for section in on_page("training"):
        show_section(section)


@st.fragment(run_every=REFRESH_SECONDS)
def _now(metric: str) -> None:
    """Show running runs, and their trainings so far."""
    going, steps = recorded.running(root()), recorded.live_steps(root())
    if not going and steps.num_rows == 0:
        st.caption("No training is going on.")
        return
    st.subheader("Now", anchor="now")
    for run in going:
        share = run.stages_done / run.stages if run.stages else 0.0
        st.progress(min(1.0, share), f"{run.id} · {run.at or 'starting'} · {run.stages_done} of {run.stages} stages")
    if steps.num_rows:
        _chart(steps, metric, (), "ref")
        last = recorded.training_states(steps)
        st.caption(" · ".join(f"{row['arm']} seed {row['seed']} at step {row['steps']}" for row in last.to_pylist()))
        table(last)


def _chart(steps: pa.Table, metric: str, arms: tuple[str, ...], dash: str) -> None:
    """Plot a metric by step. arms: arms with fixed colours; other arms follow by name."""
    rows = steps.select(["arm", "step", dash, metric]).filter(pc.field(metric).is_valid())
    name = metric.replace("_", " ")
    if rows.num_rows == 0:
        st.info(f"{name} was not measured.")
        return
    arms = (*arms, *sorted(set(steps["arm"].to_pylist()) - set(arms)))
    chart = Chart(kind="lines", x="step", y=metric, x_name="step", y_name=name)
    plot(lines(chart, rows.to_pylist(), arms, dash=dash))
