"""The cards on a run's page in Prefect: report, plan and progress. Prefect lists the newest card of a run first."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from httpx import HTTPError
from prefect.client.orchestration import get_client  # noqa: TID253

from flows.running.costs import Cost, costs, total
from flows.running.forecast import lasting
from flows.running.plan import Planned
from flows.running.sessions import Charging, Listener
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.leases import beating
from storage.records.runs import UNITS, Amounts
from storage.records.spending import Journal
from tasks.domain.budget import plainly
from tasks.stage import Progress

EVERY_SECONDS = 15.0
PLAN, PROGRESS, REPORT = "plan", "progress", "report"


def show_card(flow_run: str, key: str, markdown: str, description: str) -> None:
    """Write a card of a flow run, replacing the one with the same key."""
    query = {"artifacts": {"flow_run_id": {"any_": [flow_run]}, "key": {"any_": [key]}}}
    content = {"data": markdown, "description": description[:200]}
    with get_client(sync_client=True) as prefect:
        client: Any = prefect
        if found := client.request("POST", "/artifacts/filter", json=query).json():
            client.request("PATCH", f"/artifacts/{found[0]['id']}", json=content)
        else:
            body = {"key": key, "flow_run_id": flow_run, "type": "markdown", **content}
            client.request("POST", "/artifacts/", json=body)


@dataclass(slots=True)
class Board:
    """The progress card of a run. missing: expected cost of each stage that is not made yet. spent: total of all
    workers of the run so far."""

    flow_run: str
    missing: Mapping[Ref, Cost]
    limits: Mapping[str, float]
    spent: Callable[[], Amounts]
    last: Progress | None = None
    _began: float = 0.0
    _done: set[Ref] = field(default_factory=set)

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
        """Update the card. If the server is unreachable, the run continues and the next update is shown."""
        left = total([cost for ref, cost in self.missing.items() if ref not in self._done])
        words = in_words(self.last, time.monotonic() - self._began) if self.last else "nothing is made yet"
        table = as_table(words, self.spent(), self.limits, left)
        with suppress(HTTPError):
            show_card(self.flow_run, PROGRESS, table, words)


def in_words(event: Progress, seconds: float) -> str:
    """
    >>> in_words(Progress("advanced", "train panel seed 0", Ref("training", "0" * 16), 10, 40, "steps"), 40.0)
    'train panel seed 0: 10 of 40 steps, about 2 minutes left'
    """
    if event.event == "made" or not event.total:
        return f"{event.title}: {'made' if event.event == 'made' else 'begun'}"
    far = f"{event.title}: {event.done:,} of {event.total:,} {event.unit}"
    if not event.done:
        return far
    return f"{far}, about {lasting(seconds * (event.total - event.done) / event.done / 3600)} left"


def as_table(words: str, spent: Amounts, limits: Mapping[str, float], left: Amounts) -> str:
    """Return a row per unit that is spent, limited or missing, then the text.

    >>> spent, left = Amounts(tokens=1200), Amounts(tokens=30000, gpu_hours=0.5)
    >>> print(as_table("screen panel: made", spent, {"tokens": 9000.0}, left))
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
    return "\n".join([*rows, "", words])


@contextmanager
def progress_on_page(
    study: Study, store: Store, planned: list[Planned], charging: Charging, flow_run: str, listener: Listener
) -> Iterator[Listener]:
    """Yield the listener that shows the run's progress on its page."""
    each = costs(study, store, planned, charging.prices)
    missing = {p.step.ref: cost for p, cost in zip(planned, each, strict=True) if p.made_here}
    board = Board(flow_run, missing, charging.budget.limits(), Journal(store.root, charging.run).spent)
    try:
        with beating(board.show, every=EVERY_SECONDS):
            yield board.before(listener)
    finally:
        board.show()
