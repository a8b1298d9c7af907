"""Bands: which problems of each arm give a gradient, and how two arms' bands overlap."""

from __future__ import annotations

import pyarrow as pa

from dashboards import charts
from dashboards.pages.parts import figure


def page() -> None:
    figure(
        "Problems by band",
        "report_bands",
        ("bands",),
        lambda rows: charts.band_bars(rows, ("arm",)),
        caption="Only the variance band, with correct and wrong rollouts in a group, gives a gradient.",
    )
    figure(
        "Two arms against each other",
        "report_crosstab",
        ("crosstab",),
        _heat,
        empty="There is only one arm in this run.",
    )
    figure("What the cross-tab says", "report_band_tests", ("crosstab",), empty="There is only one arm in this run.")
    figure("Bands by source", "report_band_sources", ("bands",), lambda rows: charts.band_bars(rows, ("source", "arm")))
    figure(
        "How much of a band is luck",
        "report_band_expectations",
        ("crosstab",),
        caption="A beta-binomial fit: expected live groups at the training group size, and labels that another draw"
        " would change.",
    )


def _heat(rows: pa.Table) -> charts.Spec | None:
    arms = sorted({(row["arm"], row["other"]) for row in rows.to_pylist()})
    return charts.heat(rows, *arms[0]) if len(arms) == 1 else None
