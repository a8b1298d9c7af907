"""The flows that a Prefect server offers: studies, pieces, nightly re-evaluation, regrading and garbage collection."""

import os
import time
from base64 import b64encode
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, get_run_logger  # noqa: TID253
from prefect.artifacts import create_markdown_artifact, create_table_artifact  # noqa: TID253
from prefect.client.orchestration import get_client  # noqa: TID253
from prefect.client.schemas.objects import FlowRun  # noqa: TID253
from prefect.events import emit_event  # noqa: TID253
from prefect.flow_runs import suspend_flow_run  # noqa: TID253
from prefect.input import RunInput, read_flow_run_input  # noqa: TID253
from prefect.states import Cancelled, Completed, Failed, Running  # noqa: TID253
from pydantic import Field

from flows.running.accounting import accounted
from flows.running.forecast import Forecast
from flows.running.on_prefect import AWAY, PARKED, PrefectPool, as_task, cancel_children
from flows.running.pieces import Piece, dispatch, make_piece, next_pieces
from flows.running.plan import Planned
from flows.running.plan import plan as planned_stages
from flows.running.processes import Claims, share
from flows.running.sessions import Charging, Listener, stages_of, stages_on
from flows.server.deployments import PARKED_EVENT
from flows.server.workplace import (
    PLAN,
    PROGRESS,
    REPORT,
    Workplace,
    check_alike,
    event_log,
    opened,
    opened_store,
    progress_on_page,
    show_card,
    this_run,
)
from flows.study.forms import PinnedForm, SettingForm, StudyForm
from flows.study.resolve import Study
from flows.upkeep.reeval import Unchecked, counts_of, page_of, reevaluate, sentence_of
from flows.upkeep.regrading import regrade_store
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Parked, Unreachable, UserError
from storage.objects import patient
from storage.records.record import Night
from storage.records.runs import run_id
from storage.roots import root_folder
from tasks.domain.budget import Budget
from tasks.domain.statistics.nights import CANARY_TOKENS
from tasks.metering import metered

PIECES = "make/zz_make"
#: Seconds after which a run tries its storage again, if the storage did not answer.
AWAY_SECONDS = 60.0
#: States of a night: an accuracy or a verdict changed; something could not be compared.
DRIFTED, UNCHECKED = "Drifted", "Unchecked"
#: A second run of `gc` within this time is the restart of a lost one, and does not empty the bin.
RESTARTED_WITHIN = timedelta(hours=1)
#: Most collected artifacts that a page lists.
MOST_LISTED = 1000


class TopUp(RunInput):
    """The form that **Resume** shows for a paused run."""

    more: Budget = Field(default=Budget(), description="Amounts to add to the budget limits.")
    anyway: bool = Field(
        default=False, description="Train even if the screening found too few usable problems or rollouts."
    )

    def over(self, study: StudyForm, budget: Budget) -> tuple[StudyForm, Budget]:
        """Return study and budget after the answers in this form."""
        anyway = [SettingForm(field="gate.anyway", value="true")] if self.anyway else []
        return study.model_copy(update={"settings": [*study.settings, *anyway]}), budget.raised(self.more)


def _cancel_pieces(flow: Any, flow_run: FlowRun, state: Any) -> None:
    cancel_children(str(flow_run.id))


@flow(name="experiment", on_cancellation=[_cancel_pieces], persist_result=False)
def experiment(study: StudyForm = StudyForm(), budget: Budget = Budget(), gpu_pool: bool = False) -> str:  # noqa: B008
    """Run a study and make its report, reusing stored artifacts.

    Args:
        study: The study to run.
        budget: Spending limit; empty: the limit of the study's file, if any.
        gpu_pool: Run sampling, training and embedding on the pool of GPU workers.
    """
    while True:  # a network failure does not end a run: it goes on as soon as object storage answers again
        try:
            return _made(study, budget, gpu_pool=gpu_pool)
        except Unreachable as away:
            _wait_for_storage(str(away))


def _wait_for_storage(why: str) -> None:
    """Show the run as paused, and wait. The process stays alive, so that the run does not count as lost."""
    _report_pause(why)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(this_run().id, Running(name=PARKED, message=why), force=True)
        time.sleep(AWAY_SECONDS)
        client.set_flow_run_state(this_run().id, Running(), force=True)


def _made(study: StudyForm, budget: Budget, *, gpu_pool: bool) -> str:
    chosen, store = opened(study)
    study, budget, resumed = _granted(study, budget.over(chosen.profile.budget))
    flow_run = str(this_run().id)
    show_card(flow_run, PROGRESS, "The plan is made.", "begun")  # shown first, because Prefect lists the newest first
    plan_page = Forecast.of(chosen, store, budget).markdown()
    show_card(flow_run, PLAN, plan_page, "what remained to be made when the run started")
    while True:
        chosen, store = opened(study)
        planned = planned_stages(chosen, store)
        try:
            _run(chosen, store, study, budget, planned, gpu_pool=gpu_pool)
            break
        except Unreachable:
            raise
        except Parked as parked:
            study, budget = _topped_up(str(parked), resumed).over(study, budget)
            resumed += 1
    return _show_report(store, planned[-1].step.ref)


def _show_report(store: Store, report: Ref) -> str:
    """Put the report on the run's page, and the location of its files into the log."""
    files = store.files(report).resolve()
    address = os.environ.get("VARBAND_URL", "http://127.0.0.1:8501").rstrip("/")
    page = f"[The report in `varband serve`]({address}/?run={report})\n\n{with_chart(files)}"
    show_card(str(this_run().id), REPORT, page, str(report))
    get_run_logger().info("report: %s, in `varband serve` %s/?run=%s", files / "report.html", address, report)
    return str(report)


def with_chart(files: Path) -> str:
    """Return the text of a report. The chart of its answer is an image inside the text, because Prefect stores no
    files. Prefect's new interface (`/v2`) shows only the image's name."""
    text, chart = (files / "report.md").read_text(encoding="utf-8"), files / "answer.png"
    if not chart.is_file():
        return text
    image = f"![Chart of the answer](data:image/png;base64,{b64encode(chart.read_bytes()).decode()})"
    return text.replace("\n## The answer\n", f"\n## The answer\n\n{image}\n", 1)


def _run(
    study: Study, store: Store, form: StudyForm, budget: Budget, planned: list[Planned], *, gpu_pool: bool
) -> None:
    flow_run, tell, hardware = str(this_run().id), get_run_logger().info, study.profile.hardware
    charging = Charging.of(study, store, run_id(study.profile.called, planned[-1].step.ref), budget)
    request, as_tasks = form.request().as_json(), partial(as_task, study.profile.called)
    with (
        get_client(sync_client=True) as client,
        progress_on_page(study, store, planned, charging, flow_run, event_log()) as listener,
        accounted(study, store, planned, charging, listener, request, flow_run) as listeners,
        stages_of(study, store, listeners.own, wrap=as_tasks) as current,
    ):
        if not gpu_pool:
            share(study, Claims(current, hardware, waits=tell), tell, in_shards=False)
            return
        pinned, asker = PinnedForm.of(form, study).model_dump(), Workplace.here().model_dump()
        same = {"study": pinned, "run": charging.run, "budget": asdict(budget), "asker": asker}

        def parameters(piece: Piece) -> dict[str, Any]:
            return {**same, "ref": str(piece.ref), "shard": piece.shard}

        label = f" · {form.name or this_run().name}"
        pool = PrefectPool(client, PIECES, charging.run, flow_run, parameters, tell, label=label)
        dispatch(partial(next_pieces, current, study), pool, tell)


def _granted(study: StudyForm, budget: Budget) -> tuple[StudyForm, Budget, int]:
    """Return the study and its budget after every **Resume** of the run, and how often it was resumed."""
    resumed = 0
    while (answer := read_flow_run_input(f"suspended-wall-{resumed}-response")) is not None:
        study, budget = TopUp.model_validate(answer).over(study, budget)
        resumed += 1
    return study, budget, resumed


def _report_pause(why: str) -> None:
    """Write the reason to the run's log and to its progress card. The card changes when the run continues."""
    get_run_logger().warning("%s", why)
    show_card(str(this_run().id), PROGRESS, f"**Parked.** {why}", why)


def _topped_up(why: str, resumed: int) -> TopUp:
    """Report why the run is paused, and end the process. When a user resumes the run, another process continues it.
    resumed: how often the run was resumed before."""
    _report_pause(why)
    emit_event(PARKED_EVENT, {"prefect.resource.id": f"prefect.flow-run.{this_run().id}"}, payload={"why": why})
    top_up = TopUp.with_initial_data(description=f"{why}\n\nThe amounts that you enter are added to the budget limits.")
    return suspend_flow_run(wait_for_input=top_up, key=f"wall-{resumed}")


@flow(name="make", persist_result=False)
def make(
    study: PinnedForm,
    ref: str,
    run: str,
    shard: int | None = None,
    budget: Budget = Budget(),  # noqa: B008
    asker: Workplace | None = None,
) -> Any:
    """Make one artifact of a study, or a shard of its rollouts, on a GPU worker; charged to the requesting run.

    Args:
        study: The study and its grader overrides.
        ref: The artifact to make.
        run: The run that is charged.
        shard: The shard of rollouts to sample; empty for the whole artifact.
        budget: Spending limit of the whole run.
        asker: Environment of the run; a worker with a different one refuses before anything is spent.
    """
    try:
        if asker is not None:
            check_alike(asker, run, opened_store().root)
        chosen, store = opened(study)
        chosen = study.pinned(chosen)
        charging = Charging.of(chosen, store, run, budget)
        planned = [p for p in planned_stages(chosen, store) if str(p.step.ref) == ref]
        if not planned:
            raise UserError(
                f"{ref}: this worker's study does not make this artifact; give the worker the same files as the run"
            )
        with (
            patient(),
            progress_on_page(chosen, store, planned, charging, str(this_run().id), event_log()) as listener,
            metered(charging.meter(chosen.profile.hardware, store), listener) as charged,
            stages_of(chosen, store, charged) as current,
        ):
            make_piece(current, planned[0].step, shard, chosen.profile.hardware)
    except Parked as limit:
        return Cancelled(name=AWAY if isinstance(limit, Unreachable) else PARKED, message=str(limit))
    return f"{ref} is made" if shard is None else f"shard {shard} of {ref} is sampled"


@flow(name="reeval", persist_result=False)
def reeval(
    studies: list[StudyForm] = [],  # noqa: B006
    budget: Budget = Budget(),  # noqa: B008
    canary_tokens: Annotated[int, Field(ge=0, le=10**9)] = CANARY_TOKENS,
    sample_anyway: bool = False,
) -> Any:
    """Evaluate stored adapters on the held-out problems again: on all problems if the machine or the engine changed,
    otherwise on a few.

    Args:
        studies: Studies whose newest adapters are evaluated; empty: all finished runs of this root.
        budget: Spending limit of this night.
        canary_tokens: Approximate tokens to sample per adapter if nothing changed; 0: none.
        sample_anyway: Sample all held-out problems tonight, even if nothing changed.
    """
    store = opened_store()
    run = f"reeval-{str(this_run().id)[:8]}"  # because each night has its own budget

    def charged(study: Study) -> AbstractContextManager[Listener]:
        charging = Charging.of(study, store, run, budget)
        return metered(charging.meter(study.profile.hardware, store), event_log())

    found, named = list[Night | Unchecked](), [_resolved(form, store) for form in studies]
    try:
        for one in reevaluate(store, named, charged, canary_tokens=canary_tokens, anyway=sample_anyway):
            found.append(one)
    except Parked as limit:
        return Cancelled(name=PARKED, message=f"{len(found)} adapters were evaluated; {limit}")
    finally:
        create_markdown_artifact(page_of(found, store.root), key="nightly", description=counts_of(found))
    states = {one.state for one in found}
    if states == {"holds"}:
        return Completed(message=counts_of(found))
    return Failed(name=DRIFTED if "drifted" in states else UNCHECKED, message=sentence_of(found)[:1000])


def _resolved(form: StudyForm, store: Store) -> Study | Unchecked:
    """Return the study, or why this worker cannot resolve it. The other studies are still evaluated."""
    try:
        return form.request().study(store)
    except UserError as error:
        return Unchecked(f"adapters of {form.request().profile}", str(error))


@flow(name="regrade", persist_result=False)
def regrade() -> int:
    """Regrade all stored rollouts with the installed grader; samples nothing, overwrites nothing."""
    store = opened_store()
    with stages_on(store, event_log()):
        found = regrade_store(store)
    sentences = "\n".join(f"- {sentence}" for sentence in found.sentences())
    create_markdown_artifact(sentences, key="regrade", description=f"{found.changes.num_rows} verdicts changed")
    return found.changes.num_rows


@flow(name="plan", persist_result=False)
def plan(study: StudyForm = StudyForm(), budget: Budget = Budget()) -> str:  # noqa: B008
    """Show what a study would make, reuse, cost and detect, stage by stage. Makes and fetches nothing.

    Args:
        study: The study to plan.
        budget: Limit to compare the cost with.
    """
    chosen, store = opened(study, planning=True)
    priced = Forecast.of(chosen, store, budget.over(chosen.profile.budget))
    create_markdown_artifact(priced.markdown(), key="plan", description=priced.called)
    return "; ".join(priced.sentences())


@flow(name="gc", persist_result=False)
def gc(older_than_days: Annotated[float, Field(ge=0, le=36_500)] = 7.0, remove: bool = False) -> int:
    """Collect artifacts that no report, adapter or unfinished run needs. The ledger stays.

    Args:
        older_than_days: Keep younger files.
        remove: Move files to the bin, and delete those binned for over an hour; otherwise only list them.
    """
    from storage.records.garbage import collect

    root = root_folder(os.environ.get("VARBAND_ROOT", ".varband"))
    if not root.is_dir():
        raise UserError(f"VARBAND_ROOT={root}: this folder does not exist on this worker")
    found = collect(root, older_than=timedelta(days=older_than_days), remove=remove, binned_for=RESTARTED_WITHIN)
    megabytes, verb = sum(found["bytes"].to_pylist()) / 1e6, "moved or deleted" if remove else "would be moved"
    summary = f"{found.num_rows} folders, {megabytes:.1f} MB: {verb}"
    create_table_artifact(found.slice(0, MOST_LISTED).to_pylist(), key="gc", description=summary)
    return found.num_rows
