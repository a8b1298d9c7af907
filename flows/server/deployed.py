"""The flows of a study that a Prefect server knows: what people start from its UI, what workers run."""

from __future__ import annotations

import os
import time
from collections.abc import Set
from typing import Any

from prefect import flow, get_run_logger  # noqa: TID253
from prefect.client.orchestration import get_client  # noqa: TID253
from prefect.client.schemas.objects import FlowRun  # noqa: TID253
from prefect.events import emit_event  # noqa: TID253
from prefect.flow_runs import suspend_flow_run  # noqa: TID253
from prefect.input import RunInput, read_flow_run_input  # noqa: TID253
from prefect.states import Cancelled, Running  # noqa: TID253
from pydantic import Field

from flows.experiment import experiment as whole
from flows.problems import prepare
from flows.running.accounting import accounted
from flows.running.likeness import Workplace, check_alike
from flows.running.pieces import make_piece, next_pieces
from flows.running.plan import Planned, is_costly, plan
from flows.running.pool import AWAY, Work, cancel_children, dispatch
from flows.running.prefect_tasks import PARKED, under_prefect
from flows.running.priced import Priced
from flows.running.sessions import Charging, Listener
from flows.server.automations import PARKED_EVENT
from flows.server.page import PLAN, PROGRESS, REPORT, show_card, shown
from flows.server.workplace import opened, opened_store, telling, this_run
from flows.study.forms import BudgetForm, PinnedForm, SearchForm, SettingForm, StudyForm
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Parked, Unreachable, UserError
from storage.objects import patient
from storage.records.runs import run_id
from tasks.domain.budget import MOST
from tasks.metering import OCCUPYING, metered
from tasks.stage import Step

PIECES = "make/zz_make"
#: A run whose storage does not answer looks again this much later.
AWAY_SECONDS = 60.0


class TopUp(RunInput):
    """What a parked run asks for."""

    tokens: float = Field(default=0, ge=0, le=MOST, description="More tokens.")
    gpu_hours: float = Field(default=0, ge=0, le=MOST, description="More GPU-hours.")
    usd: float = Field(default=0, ge=0, le=MOST, description="More US dollars.")
    anyway: bool = Field(default=False, description="Train although the screening shows that it teaches little.")

    def over(self, study: StudyForm, budget: BudgetForm) -> tuple[StudyForm, BudgetForm]:
        """The study and the budget with what this answer changes."""
        more = BudgetForm(tokens=self.tokens or None, gpu_hours=self.gpu_hours or None, usd=self.usd or None)
        anyway = [SettingForm(field="gate.anyway", value="true")] if self.anyway else []
        return study.model_copy(update={"settings": [*study.settings, *anyway]}), budget.raised(more)


def _cancel_pieces(flow: Any, flow_run: FlowRun, state: Any) -> None:
    cancel_children(str(flow_run.id))


@flow(name="experiment", on_cancellation=[_cancel_pieces], persist_result=False)
def experiment(study: StudyForm = StudyForm(), budget: BudgetForm = BudgetForm(), gpu_pool: bool = False) -> str:  # noqa: B008
    """Run a study and end with its report. What the store has is reused.

    Args:
        study: Which study.
        budget: The most that it may spend; empty: as the study's file says, else no limit.
        gpu_pool: Run sampling, training and embedding as `make` runs on the pool of GPU workers.
    """
    return _whole(study, budget, gpu_pool=gpu_pool)


@flow(name="search", on_cancellation=[_cancel_pieces], persist_result=False)
def search(
    search: SearchForm,
    study: StudyForm = StudyForm(),  # noqa: B008
    budget: BudgetForm = BudgetForm(),  # noqa: B008
    gpu_pool: bool = False,
) -> str:
    """Search the held-out problems of a study at test time, before training and after, and end with its report.

    Args:
        search: By which methods, within how many tokens a problem.
        study: Which study.
        budget: The most that the whole run may spend; empty: as the study's file says, else no limit.
        gpu_pool: Run sampling, training and embedding as `make` runs on the pool of GPU workers.
    """
    return _whole(search.of(study), budget, gpu_pool=gpu_pool)


def _whole(study: StudyForm, budget: BudgetForm, *, gpu_pool: bool) -> str:
    """As often as object storage went away and came back: a run is not lost for want of a network."""
    while True:
        try:
            return _made(study, budget, gpu_pool=gpu_pool)
        except Unreachable as away:
            _wait_for_storage(str(away))


def _wait_for_storage(why: str) -> None:
    """Show the run as parked for a while. Its process stays: it is not counted as lost, and nobody must answer."""
    _say_parked(why)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(this_run().id, Running(name=PARKED, message=why), force=True)
        time.sleep(AWAY_SECONDS)
        client.set_flow_run_state(this_run().id, Running(), force=True)


def _made(study: StudyForm, budget: BudgetForm, *, gpu_pool: bool) -> str:
    chosen, store = opened(study)
    study, budget, wall = _granted(study, budget.over(chosen.profile.budget))
    flow_run = str(this_run().id)
    show_card(flow_run, PROGRESS, "The plan is made.", "begun")  # before the plan: Prefect lists the newest card first
    plan_page = Priced.of(chosen, store, budget.budget()).markdown()
    show_card(flow_run, PLAN, plan_page, "what remained to be made when the run started")
    while True:
        chosen, store = opened(study)
        planned = plan(chosen, store)
        try:
            _run(chosen, store, study, budget, planned, gpu_pool=gpu_pool)
            break
        except Unreachable:
            raise
        except Parked as parked:
            study, budget = _topped_up(str(parked), wall).over(study, budget)
            wall += 1
    return _show_report(store, planned[-1].step.ref)


def _show_report(store: Store, report: Ref) -> str:
    """Put the report on the run's page; the log says where its files are."""
    files = store.files(report).resolve()
    address = os.environ.get("VARBAND_URL", "http://127.0.0.1:8501").rstrip("/")
    page = f"[The report in `varband serve`]({address}/?run={report})\n\n{(files / 'report.md').read_text()}"
    show_card(str(this_run().id), REPORT, page, str(report))
    get_run_logger().info("report: %s, in `varband serve` %s/?run=%s", files / "report.html", address, report)
    return str(report)


def _run(
    study: Study, store: Store, form: StudyForm, budget: BudgetForm, planned: list[Planned], *, gpu_pool: bool
) -> None:
    flow_run = str(this_run().id)
    request = form.request().as_json()
    charging = Charging.of(study, store, run_id(study.profile.called, planned[-1].step.ref), budget.budget())
    with (
        shown(study, store, planned, charging, flow_run, telling()) as listener,
        accounted(study, store, planned, charging, listener, request, flow_run) as listeners,
    ):
        if gpu_pool and is_costly(planned):
            under_prefect(study, store, listeners.own, prepare)
            _on_pool(study, store, listeners.own, form, budget, charging.run)
        under_prefect(study, store, listeners.own, whole)


def _on_pool(study: Study, store: Store, listener: Listener, form: StudyForm, budget: BudgetForm, run: str) -> None:
    pinned, name = PinnedForm.of(form, study).model_dump(), form.name or this_run().name
    same = {"study": pinned, "run": run, "budget": budget.model_dump(), "asker": Workplace.here().model_dump()}

    known = set[str]()

    def wanted(done: Set[str]) -> list[Work]:
        known.update(key.removeprefix(f"{run}:") for key in done)
        return [
            Work(f"{run}:{one.key}", f"{one.name} · {name}", {**same, "ref": str(one.ref), "shard": one.shard})
            for one in next_pieces(study, store, listener, known)
        ]

    dispatch(PIECES, wanted, get_run_logger().info, parent=str(this_run().id))


def _granted(study: StudyForm, budget: BudgetForm) -> tuple[StudyForm, BudgetForm, int]:
    """The study and the budget with all that was answered while the run was parked, and how often it was."""
    wall = 0
    while (answer := read_flow_run_input(f"suspended-wall-{wall}-response")) is not None:
        study, budget = TopUp.model_validate(answer).over(study, budget)
        wall += 1
    return study, budget, wall


def _say_parked(why: str) -> None:
    """The run's log and its progress card say why; the card changes as soon as the run goes on."""
    get_run_logger().warning("%s", why)
    show_card(str(this_run().id), PROGRESS, f"**Parked.** {why}", why)


def _topped_up(why: str, wall: int) -> TopUp:
    """Say why and free the process; the answer comes to the process that goes on."""
    _say_parked(why)
    emit_event(PARKED_EVENT, {"prefect.resource.id": f"prefect.flow-run.{this_run().id}"}, payload={"why": why})
    asked = TopUp.with_initial_data(description=f"{why}\n\nWhat you add raises the limits that were given.")
    return suspend_flow_run(wait_for_input=asked, key=f"wall-{wall}")


@flow(name="make", persist_result=False)
def make(
    study: PinnedForm,
    ref: str,
    run: str,
    shard: int | None = None,
    budget: BudgetForm = BudgetForm(),  # noqa: B008
    asker: Workplace | None = None,
) -> Any:
    """One artifact of a study, or a shard of its rollouts, on a GPU worker; charged to the run that wants it.

    Args:
        study: Which study, under which overrides.
        ref: Which artifact of it.
        run: Whose budget it spends.
        shard: Which shard of its rollouts to sample; empty for the whole artifact.
        budget: The most that the whole run may spend.
        asker: Where the run is at work; a worker that differs refuses before anything is paid.
    """
    try:
        if asker is not None:
            check_alike(asker, run, opened_store().root)
        chosen, store = opened(study)
        chosen = study.pinned(chosen)
        charging = Charging.of(chosen, store, run, budget.budget())
        planned = [p for p in plan(chosen, store) if str(p.step.ref) == ref]
        with (
            patient(),
            shown(chosen, store, planned, charging, str(this_run().id), telling()) as listener,
            metered(charging.meter(chosen, store), listener) as charged,
        ):
            make_piece(chosen, store, charged, Ref.parse(ref), shard)
    except Parked as wall:
        return Cancelled(name=AWAY if isinstance(wall, Unreachable) else PARKED, message=str(wall))
    return f"{ref} is made" if shard is None else f"shard {shard} of {ref} is sampled"


@flow(name="report", persist_result=False)
def report(study: StudyForm = StudyForm()) -> str:  # noqa: B008
    """Make the report of a study again from what the store has; never samples or trains.

    Args:
        study: Which study.
    """
    chosen, store = opened(study)

    def refuse(step: Step) -> None:
        if step.ref.kind in OCCUPYING:
            raise UserError(f"'{step.title}' is not made yet: run the experiment first; a report samples nothing")

    made = under_prefect(chosen, store, telling(), whole, before=refuse)
    return _show_report(store, made)
