"""What a run has on the worker that it came to: the store, the log, and how often it may come back."""

from __future__ import annotations

import os
from collections.abc import Callable

from prefect import get_run_logger  # noqa: TID253
from prefect.client.schemas.objects import FlowRun  # noqa: TID253
from prefect.context import get_run_context  # noqa: TID253

from flows.running.pool import TRIES
from flows.study.forms import PinnedForm, StudyForm
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.provenance import command
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.roots import root_folder
from tasks.engines.environment import quiet_libraries
from tasks.stage import Progress


def opened(study: StudyForm, *, planning: bool = False) -> tuple[Study, Store]:
    """Return the study and the store of this worker. The study's settings become tags of the run, and its name the
    run's name in Prefect's lists. planning: fetch no file that is missing here."""
    store, request = opened_store(), study.request()
    command.set(request.command())
    _label(request, "" if isinstance(study, PinnedForm) else study.name)
    return request.study(store, planning=planning), store


def opened_store() -> Store:
    """The store of this worker: VARBAND_ROOT, VARBAND_DATA and VARBAND_MODELS are its machine's."""
    quiet_libraries()
    _bounded()
    store = Store(root_folder(os.environ.get("VARBAND_ROOT", ".varband")))
    store.prepare()
    return store


def _label(request: Request, name: str) -> None:
    from prefect.client.orchestration import get_client

    wishes = {"profile": request.profile, "arms": ",".join(request.arms), "seeds": ",".join(map(str, request.seeds))}
    said = [f"{name}={value}" for name, value in wishes.items() if value]
    run = this_run()
    with get_client(sync_client=True) as client:
        client.update_flow_run(run.id, name=name or None, tags={*run.tags, *said, *request.settings})


def this_run() -> FlowRun:
    run = get_run_context().flow_run  # type: ignore[union-attr]
    assert run is not None
    return run


def _bounded() -> None:
    """A run that was lost and retried too often fails for good instead of looping for ever."""
    run = this_run()
    if run.run_count > TRIES + 1:
        raise UserError(f"this run was started {run.run_count} times; look at its earlier attempts before another one")


def telling() -> Callable[[Progress], None]:
    logger = get_run_logger()

    def tell(event: Progress) -> None:
        if event.event == "advanced":
            logger.info("%s: %d of %d %s %s", event.title, event.done, event.total, event.unit, event.detail)
        elif event.event in ("noted", "seen"):
            logger.info("%s: %s", event.title, event.detail)
        elif event.event != "started":
            logger.info("%s: %s (%s)", event.title, event.event, event.ref)

    return tell
