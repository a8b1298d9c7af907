"""Results: before and after, pass@k, cost and diversity."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pyarrow as pa
import streamlit as st

from dashboards import charts
from dashboards.pages.parts import chosen, figure, root, table
from storage.reading.query_cache import sources


def page() -> None:
    report = chosen()
    if report is None:
        return

    def curve(x: str, y: str) -> Callable[[pa.Table], charts.Spec]:
        return lambda rows: charts.lines(rows, x, y, report.arms, share=True, log_x=True, dash="step")

    figure("Every arm", "report_summary", ("final", "trainings", "bands"))
    extra = ["Benchmarks"] if sources(root(), report.ref, ("benchmarks",)) else []
    passk, diversity, cost, hard, *benchmarks = st.tabs(["pass@k", "Diversity", "Cost", "Hard problems", *extra])
    for tab in benchmarks:
        with tab:
            figure("What is asked", "report_benchmarks", ("benchmarks",))
            figure(
                "pass@k by benchmark",
                "report_slices",
                ("slices", "benchmarks"),
                write=lambda rows: _each(rows, curve("k", "pass_at_k")),
                caption="Bands hold for all k together (95 %).",
            )
            figure("Gaps and their closure by benchmark", "report_slice_gaps", ("slice_contrasts", "benchmarks"))
    with passk:
        figure(
            "pass@k of the held-out problems",
            "report_passk",
            ("passk",),
            curve("k", "pass_at_k"),
            caption="Bands hold for all k together (95 %).",
        )
        figure("Gaps and their closure", "report_gaps", ("contrasts",))
        figure("By source", "report_passk_sources", ("passk",))
        figure("pass^k: all of k correct", "report_pass_all_k", ("passk",), curve("k", "pass_all_k_rate"))
        figure("One answer from k rollouts", "report_votes", ("votes",))
        figure("Where pass@k ends", "report_asymptotes", ("asymptotes",), curve("k", "pass_at_k"))
    with diversity:
        figure("Problem by problem", "report_diversity_pairs", ("diversities",), _pairs)
        figure("Each policy", "report_diversity_policies", ("diversities",))
        figure(
            "Policies compared",
            "report_diversity",
            ("diversity",),
            caption="Paired by problem; adjusted: at equal length and accuracy.",
        )
        figure("Window by window", "report_windows", ("diversity",))
        figure("Floor and ceiling", "report_ceilings", ("ceilings",))
        figure("Without an encoder", "report_answers", ("answers",))
    with cost:
        figure("Coverage at equal tokens", "report_equal_tokens", ("passk",), curve("tokens", "pass_at_k"))
        figure("Tokens per correct answer", "report_tokens", ("tokens",))
        figure("Lengths, pair by pair", "report_token_pairs", ("tokens",))
        figure("Spending by purpose", "report_spending", ("screenings", "evaluations", "final", "sliced", "trainings"))
    with hard:
        figure("Who solves what", "report_hard", ("hard",))
        figure("Problems that divide the arms", "report_hard_problems", ("hard",))


def _each(rows: pa.Table, chart: Callable[[pa.Table], charts.Spec]) -> None:
    """One chart a benchmark, over the numbers of all of them."""
    for name, some in groupby(rows.to_pylist(), key=lambda row: row["benchmark"]):
        st.markdown(f"**{name}**")
        st.vega_lite_chart(chart(pa.Table.from_pylist(list(some))), width="stretch")
    with st.expander("Its numbers"):
        table(rows)


def _pairs(rows: pa.Table) -> charts.Spec | None:
    before = [row for row in rows.to_pylist() if row["phase"] == "before"]
    first = [row for row in before if row["other"] == before[0]["other"]]
    if not first:
        return None
    names = (f"{first[0]['arm']}, before training", f"{first[0]['other']}, before training")
    return charts.pairs(pa.Table.from_pylist(first), names, ("diversity", "other_diversity"))
