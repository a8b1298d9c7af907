"""What a run's page shows while it is at work, as two artifacts: a bar of the stage; how far, how much, how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from httpx import HTTPError
from prefect.client.orchestration import get_client  # noqa: TID253

from flows.running.costs import Cost, costs, total
from flows.running.plan import Planned
from flows.running.sessions import Charging, Listener
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.leases import beating
from storage.records.runs import Amounts
from storage.records.spending import Journal
from tasks.domain.budget import UNITS
from tasks.domain.prices import plainly
from tasks.stage import Progress

EVERY_SECONDS = 15.0


@dataclass(slots=True)
class Board:
    """missing: what each stage that is not made yet will cost. spent: by all workers of the run, so far."""

    flow_run: str
    missing: Mapping[Ref, Cost]
    limits: Mapping[str, float]
    spent: Callable[[], Amounts]
    last: Progress | None = None
    _began: float = 0.0
    _done: set[Ref] = field(default_factory=set)
    _ids: dict[str, str] = field(default_factory=dict)

    def before(self, listener: Listener) -> Listener:
        def on_progress(event: Progress) -> None:
            if event.event == "started":
                self._began = time.monotonic()
            if event.event in ("made", "reused"):
                self._done.add(event.ref)
            if event.event in ("started", "advanced", "made"):
                self.last = event
            listener(event)

        return on_progress

    def show(self) -> None:
        """A server that is away stops no run: the next time shows more."""
        if self.last is None:
            return
        left = total([cost for ref, cost in self.missing.items() if ref not in self._done])
        share = self.last.done / self.last.total if self.last.total else float(self.last.event == "made")
        seconds = time.monotonic() - self._began
        bar = {"type": "progress", "data": round(100 * share, 1), "description": in_words(self.last, seconds)}
        table = as_table(self.last, seconds, self.spent(), self.limits, left.amounts())
        with suppress(HTTPError), get_client(sync_client=True) as prefect:
            client: Any = prefect
            for key, shown in (("stage", bar), ("progress", {"type": "markdown", "data": table})):
                if key in self._ids:
                    changed = {k: v for k, v in shown.items() if k != "type"}
                    client.request("PATCH", f"/artifacts/{self._ids[key]}", json=changed)
                else:
                    made = client.request(
                        "POST", "/artifacts/", json={"key": key, "flow_run_id": self.flow_run, **shown}
                    )
                    self._ids[key] = made.json()["id"]


def in_words(event: Progress, seconds: float) -> str:
    """
    >>> in_words(Progress("advanced", "train panel seed 0", Ref("training", "0" * 16), 10, 40, "steps"), 40.0)
    'train panel seed 0: 10 of 40 steps, about 2 min left'
    """
    if event.event == "made" or not event.total:
        return f"{event.title}: {'made' if event.event == 'made' else 'begun'}"
    far = f"{event.title}: {event.done:,} of {event.total:,} {event.unit}"
    if not event.done:
        return far
    return f"{far}, about {_duration(seconds * (event.total - event.done) / event.done)} left"


def _duration(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h"
        if seconds > 5400
        else f"{seconds / 60:.0f} min"
        if seconds > 90
        else f"{seconds:.0f} s"
    )


def as_table(event: Progress, seconds: float, spent: Amounts, limits: Mapping[str, float], left: Amounts) -> str:
    """One line for the stage, one for each unit in which something is spent, limited or missing.

    >>> event = Progress("made", "screen panel", Ref("rollouts", "0" * 16))
    >>> print(as_table(event, 1.0, Amounts(tokens=1200), {"tokens": 9000.0}, Amounts(tokens=30000, gpu_hours=0.5)))
    | | spent | of | about missing |
    |---|---|---|---|
    | tokens | 1,200 | 9,000 | 30,000 |
    | GPU-hours | 0 |  | 0.5 |
    <BLANKLINE>
    screen panel: made
    """
    rows = ["| | spent | of | about missing |", "|---|---|---|---|"]
    for name, unit in UNITS.items():
        paid, limit, missing = getattr(spent, name), limits.get(name), getattr(left, name)
        if paid or limit or missing:
            rows.append(f"| {unit} | {plainly(paid, 3)} | {plainly(limit) if limit else ''} | {plainly(missing, 3)} |")
    return "\n".join([*rows, "", in_words(event, seconds)])


@contextmanager
def shown(
    study: Study, store: Store, planned: list[Planned], charging: Charging, flow_run: str, listener: Listener
) -> Iterator[Listener]:
    """The listener to run with, so that the run's page shows what it hears."""
    each = costs(study, store, planned, charging.prices)
    missing = {p.step.ref: cost for p, cost in zip(planned, each, strict=True) if p.made_here}
    board = Board(flow_run, missing, charging.budget.limits(), Journal(store.root, charging.run).spent)
    try:
        with beating(board.show, every=EVERY_SECONDS):
            yield board.before(listener)
    finally:
        board.show()
