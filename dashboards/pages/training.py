"""Training: what goes on now, and the steps of finished runs over each other."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards.pages.parts import chosen, remember, root, show_section, table
from storage.errors import UserError
from storage.reading.charts import lines
from storage.reading.figures import Lines, on_page
from storage.reading.query_cache import ask, reports
from storage.reading.recorded import METRICS, live_steps, running, standing

REFRESH_SECONDS = 3


def page() -> None:
    index = METRICS.index(asked) if (asked := st.query_params.get("metric")) in METRICS else 0
    metric = st.selectbox("Metric", METRICS, index=index, format_func=lambda name: name.replace("_", " "))
    remember(metric=metric)
    _now(metric)
    report = chosen()
    if report is None:
        return
    found = {other.ref: other for other in reports(root())}
    over = st.multiselect("Runs", list(found), [report.ref], format_func=lambda ref: found[ref].label)
    steps = _steps(tuple(over), {ref: found[ref].label for ref in over})
    if steps.num_rows == 0:
        st.info("Nothing was trained in these runs.")
    else:
        st.subheader(metric.replace("_", " "), anchor="steps")
        _chart(steps, metric, _arms(steps, report.arms), "line" if len(over) > 1 else "seed")
        st.caption(f"query `app_steps` of {len(set(steps['training'].to_pylist()))} trainings")
    for section in on_page("training"):
        show_section(section)


def _arms(steps: pa.Table, order: tuple[str, ...]) -> tuple[str, ...]:
    return (*order, *sorted(set(steps["arm"].to_pylist()) - set(order)))


def _chart(steps: pa.Table, metric: str, arms: tuple[str, ...], dash: str) -> None:
    rows = steps.select(["arm", "step", dash, metric]).filter(pc.field(metric).is_valid())
    if rows.num_rows == 0:
        st.info(f"{metric.replace('_', ' ')} was not measured.")
        return
    declared = Lines(x="step", y=metric, x_name="step", y_name=metric.replace("_", " "))
    for spec in lines(declared, rows, arms, dash):
        st.vega_lite_chart(spec, width="stretch")


def _steps(refs: tuple[str, ...], labels: dict[str, str]) -> pa.Table:
    """Steps of several runs; `line` tells them apart."""
    tables = []
    for ref in refs:
        try:
            steps = ask(root(), ref, "app_steps")
        except UserError as error:
            st.warning(str(error))
            continue
        label = pa.array([labels[ref]] * steps.num_rows, pa.string())
        tables.append(steps.append_column("line", label))
    return (
        pa.concat_tables(tables, promote_options="default") if tables else pa.table({"arm": pa.array([], pa.string())})
    )


@st.fragment(run_every=REFRESH_SECONDS)
def _now(metric: str) -> None:
    """Runs at work and their trainings so far; looks again every few seconds."""
    going, steps = running(root()), live_steps(root())
    if not going and steps.num_rows == 0:
        st.caption("No training is going on.")
        return
    st.subheader("Now", anchor="now")
    for run in going:
        share = run.stages_done / run.stages if run.stages else 0.0
        st.progress(min(1.0, share), f"{run.id} · {run.at or 'starting'} · {run.stages_done} of {run.stages} stages")
    if steps.num_rows:
        _chart(steps, metric, _arms(steps, ()), "ref")
        last = standing(steps)
        st.caption(" · ".join(f"{row['arm']} seed {row['seed']} at step {row['steps']}" for row in last.to_pylist()))
        table(last)
