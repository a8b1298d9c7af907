"""A night on its run's page: one sentence, a table of what was compared, a picture of the last 30 nights."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.upkeep.reeval import Unchecked
from storage.reading.charts import as_svg
from storage.records.nights import Night, nights_of

SHOWN = 30


@dataclass(frozen=True, slots=True)
class NightPage:
    """The results of a night for all adapters."""

    found: Sequence[Night | Unchecked]

    @property
    def drifted(self) -> list[Night]:
        return [one for one in self.found if isinstance(one, Night) and one.state == "drifted"]

    @property
    def unchecked(self) -> list[Unchecked]:
        return [one for one in self.found if isinstance(one, Unchecked)]

    @property
    def counts(self) -> str:
        drifted, unchecked = len(self.drifted), len(self.unchecked)
        held = len(self.found) - drifted - unchecked
        return f"{held} hold, {drifted} drifted, {unchecked} were not checked"

    def sentence(self) -> str:
        """The counts, then every adapter that needs attention with its reason."""
        bad = [f"{one.adapter}: {one.found}" for one in self.drifted]
        bad += [f"{one.adapter}: {one.why}" for one in self.unchecked]
        nothing = [] if self.found else ["there is no adapter to look at: name a study, or finish a run in this root"]
        return ": ".join(filter(None, (self.counts, "; ".join([*bad, *nothing]))))

    def markdown(self, root: Path) -> str:
        lines = [self.sentence(), "", "| adapter | | evaluated | tonight | compared |", "|---|---|---|---|---|"]
        for one in self.found:
            if isinstance(one, Unchecked):
                lines.append(f"| {one.adapter} | unchecked |  |  | {one.why} |")
            else:
                tonight = "" if one.tonight is None else f"{one.tonight:.3f}"
                lines.append(f"| {one.adapter} | {one.state} | {one.evaluated:.3f} | {tonight} | {one.found} |")
        for one in self.found:
            drawn = [night for night in nights_of(root, one.adapter) if night.tonight is not None][-SHOWN:]
            if drawn:
                svg = base64.b64encode(as_svg(picture(drawn), page="white").encode()).decode()
                lines += ["", f"![The last nights of {one.adapter}](data:image/svg+xml;base64,{svg})"]
        return "\n".join(lines)


def picture(nights: Sequence[Night]) -> dict[str, Any]:
    """A Vega-Lite chart of one adapter: accuracy by night, with the band of 95 % of nights without a change."""
    rows = [night.model_dump(include={"number", "tonight", "expected", "low", "high", "state"}) for night in nights]
    axis = {"field": "number", "type": "quantitative", "title": "night", "axis": {"tickMinStep": 1, "format": "d"}}
    layer = lambda mark, **y: {"mark": mark, "encoding": {"x": axis, **y}}  # noqa: E731
    accuracy = {"type": "quantitative", "title": "accuracy", "scale": {"zero": False}}
    colour = {
        "field": "state",
        "scale": {"domain": ["holds", "drifted"], "range": ["#2a78d6", "#e34948"]},
        "title": None,
    }
    return {
        "title": nights[0].adapter,
        "description": f"Accuracy of {nights[0].adapter} by night",
        "data": {"values": rows},
        "layer": [
            layer({"type": "bar", "opacity": 0.2, "size": 8}, y={"field": "low", **accuracy}, y2={"field": "high"}),
            layer({"type": "tick", "orient": "horizontal"}, y={"field": "expected", **accuracy}),
            layer({"type": "point", "filled": True}, y={"field": "tonight", **accuracy}, color=colour),
        ],
    }
