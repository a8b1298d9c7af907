"""The flows that a Prefect server knows: what people start from its UI, what workers run, what runs every night."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from prefect import flow, get_run_logger  # noqa: TID253
from prefect.artifacts import create_link_artifact, create_markdown_artifact  # noqa: TID253
from prefect.client.schemas.objects import FlowRun  # noqa: TID253
from prefect.context import get_run_context  # noqa: TID253
from prefect.flow_runs import suspend_flow_run  # noqa: TID253
from prefect.input import RunInput, read_flow_run_input  # noqa: TID253
from prefect.states import Cancelled  # noqa: TID253
from pydantic import Field

from flows.arm import run_arm
from flows.experiment import experiment as whole
from flows.problems import prepare
from flows.running.accounting import accounted
from flows.running.plan import Planned, arms_to_make, is_costly, plan
from flows.running.pool import TRIES, Work, cancel_children, dispatch
from flows.running.prefect_tasks import PARKED, under_prefect
from flows.running.sessions import Charging
from flows.study.forms import ArmName, BudgetForm, PinnedForm, StudyForm
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.records.runs import run_id
from storage.roots import root_folder
from tasks.engines.environment import quiet_libraries
from tasks.metering import OCCUPYING, metered
from tasks.stage import Progress, Step

ARM_DEPLOYMENT = "arm/arm"


class TopUp(RunInput):
    """What a parked run asks for."""

    tokens: float = Field(default=0, ge=0, le=1e15, description="More tokens.")
    gpu_hours: float = Field(default=0, ge=0, le=1e7, description="More GPU-hours.")
    usd: float = Field(default=0, ge=0, le=1e7, description="More US dollars.")

    def form(self) -> BudgetForm:
        return BudgetForm(tokens=self.tokens or None, gpu_hours=self.gpu_hours or None, usd=self.usd or None)


def _opened(study: StudyForm) -> tuple[Study, Store]:
    """The study and the store of this worker: VARBAND_ROOT, VARBAND_DATA and VARBAND_MODELS are its machine's."""
    quiet_libraries()
    _bounded()
    request = study.request()
    store = Store(root_folder(os.environ.get("VARBAND_ROOT", ".varband")))
    store.prepare()
    return request.study(store), store


def _bounded() -> None:
    """A run that was lost and retried too often fails for good instead of looping for ever."""
    run = get_run_context().flow_run  # type: ignore[union-attr]
    if run and run.run_count > TRIES + 1:
        raise UserError(f"this run was started {run.run_count} times; look at its earlier attempts before another one")


def _telling() -> Callable[[Progress], None]:
    logger = get_run_logger()

    def tell(event: Progress) -> None:
        if event.event == "advanced":
            logger.info("%s: %d of %d %s %s", event.title, event.done, event.total, event.unit, event.detail)
        elif event.event == "noted":
            logger.info("%s: %s", event.title, event.detail)
        elif event.event != "started":
            logger.info("%s: %s (%s)", event.title, event.event, event.ref)

    return tell


def _cancel_arms(flow: Any, flow_run: FlowRun, state: Any) -> None:
    cancel_children(str(flow_run.id))


@flow(name="experiment", flow_run_name="{study.profile}", on_cancellation=[_cancel_arms], persist_result=False)
def experiment(study: StudyForm = StudyForm(), budget: BudgetForm = BudgetForm(), gpu_pool: bool = False) -> str:  # noqa: B008
    """Run a study and end with its report. What the store has is reused.

    Args:
        study: Which study.
        budget: The most that it may spend; empty for no limit.
        gpu_pool: Run sampling, training and embedding as `arm` runs on the pool of GPU workers.
    """
    chosen, store = _opened(study)
    budget, wall = _granted(budget)
    while True:
        planned = plan(chosen, store)
        try:
            _run(chosen, store, study, budget, planned, gpu_pool=gpu_pool)
            break
        except Parked as parked:
            budget = _topped_up(budget, str(parked), wall)
            wall += 1
    report = planned[-1].step.ref
    files = store.files(report).resolve()
    create_markdown_artifact((files / "report.md").read_text(), key="report", description=str(report))
    create_link_artifact((files / "report.html").as_uri(), key="report-page", description="the whole report")
    return str(report)


def _run(
    study: Study, store: Store, form: StudyForm, budget: BudgetForm, planned: list[Planned], *, gpu_pool: bool
) -> None:
    flow_run = str(get_run_context().flow_run.id)  # type: ignore[union-attr]
    request = form.request().as_json()
    charging = Charging.of(study, store, run_id(study.profile.name, planned[-1].step.ref), budget.budget())
    with accounted(study, store, planned, charging, _telling(), request, flow_run) as listeners:
        if gpu_pool and is_costly(planned):
            under_prefect(study, store, listeners.own, prepare)
            _on_pool(study, store, form, budget, charging.run, flow_run)
        under_prefect(study, store, listeners.own, whole)


def _on_pool(study: Study, store: Store, form: StudyForm, budget: BudgetForm, run: str, flow_run: str) -> None:
    logger, pinned = get_run_logger(), PinnedForm.of(form, study).model_dump()
    for arms in arms_to_make(study, store):
        works = [
            Work(
                f"{run}:{arm}",
                f"{arm} · {study.profile.name}",
                {"study": pinned, "arm": arm, "run": run, "budget": budget.model_dump()},
            )
            for arm in arms
        ]
        dispatch(ARM_DEPLOYMENT, works, logger.info, parent=flow_run)


def _granted(budget: BudgetForm) -> tuple[BudgetForm, int]:
    """The budget with all that was added while the run was parked, and how often it was."""
    wall = 0
    while (answer := read_flow_run_input(f"suspended-wall-{wall}-response")) is not None:
        budget, wall = budget.raised(TopUp.model_validate(answer).form()), wall + 1
    return budget, wall


def _topped_up(budget: BudgetForm, why: str, wall: int) -> BudgetForm:
    """Say why and free the process; the answer comes to the process that goes on."""
    create_markdown_artifact(f"**Parked.** {why}", key="parked", description=why[:200])
    asked = TopUp.with_initial_data(description=f"{why}\n\nWhat you add raises the limits that were given.")
    return budget.raised(suspend_flow_run(wait_for_input=asked, key=f"wall-{wall}").form())


@flow(name="arm", flow_run_name="{arm} · {study.profile}", persist_result=False)
def arm(study: PinnedForm, arm: ArmName, run: str, budget: BudgetForm = BudgetForm()) -> Any:  # noqa: B008
    """One arm end to end, on a GPU worker; charged to the run that wants it.

    Args:
        study: Which study, under which overrides.
        arm: Which arm of it.
        run: Whose budget it spends.
        budget: The most that the whole run may spend.
    """
    chosen, store = _opened(study)
    chosen = study.pinned(chosen)
    meter = Charging.of(chosen, store, run, budget.budget()).meter(chosen, store)
    try:
        with metered(meter, _telling()) as charged:
            under_prefect(chosen, store, charged, lambda s: run_arm(s, arm))
    except Parked as wall:
        return Cancelled(name=PARKED, message=str(wall))
    return f"{arm} is made"


@flow(name="report", flow_run_name="report of {study.profile}", persist_result=False)
def report(study: StudyForm = StudyForm()) -> str:  # noqa: B008
    """Make the report of a study again from what the store has; never samples or trains.

    Args:
        study: Which study.
    """
    chosen, store = _opened(study)

    def refuse(step: Step) -> None:
        if step.ref.kind in OCCUPYING:
            raise UserError(f"'{step.title}' is not made yet: run the experiment first; a report samples nothing")

    made = under_prefect(chosen, store, _telling(), whole, before=refuse)
    create_markdown_artifact((store.files(made) / "report.md").read_text(), key="report", description=str(made))
    return str(made)


@flow(name="regrade", flow_run_name="regrade {study.profile}", persist_result=False)
def regrade(study: StudyForm = StudyForm()) -> dict[str, int]:  # noqa: B008
    """Grade the study's stored rollouts with the grader that is installed; samples nothing, overwrites nothing.

    Args:
        study: Which study.
    """
    from flows.upkeep.reeval import regraded

    chosen, store = _opened(study)
    changed = regraded(chosen, store, _telling())
    lines = [f"| {ref} | {n} |" for ref, n in changed.items()]
    table = "\n".join(["| rollouts | verdicts that changed |", "|---|---|", *lines])
    create_markdown_artifact(table, key="regrade", description=f"{sum(changed.values())} verdicts changed")
    return changed


@flow(name="reeval", flow_run_name="re-evaluate {study.profile}", persist_result=False)
def reeval(study: StudyForm = StudyForm(), pinned: list[str] = [], budget: BudgetForm = BudgetForm()) -> int:  # noqa: B006, B008
    """Evaluate kept adapters on the held-out problems again. Costs nothing while nothing has changed.

    Args:
        study: Whose newest adapters.
        pinned: More adapters, as training-<fingerprint>@<step>.
        budget: The most that this night may spend.
    """
    from flows.upkeep.reeval import reevaluate

    chosen, store = _opened(study)
    run = f"reeval-{chosen.profile.name.replace('/', '-')}"
    meter = Charging.of(chosen, store, run, budget.budget()).meter(chosen, store)
    try:
        with metered(meter, _telling()) as charged:
            notes = reevaluate(chosen, store, tuple(pinned), charged)
    except Parked as wall:
        return Cancelled(name=PARKED, message=str(wall))  # type: ignore[return-value]
    lines = [f"- **{note.metric}** of {note.policy}: {note.words()}" for note in notes]
    create_markdown_artifact("\n".join(lines) or "No figure left its interval.", key="drift")
    return len(notes)


@flow(name="gc", persist_result=False)
def gc(older_than_days: float = 7.0, remove: bool = False) -> int:
    """What nobody wants any more: no report, adapter, pin or unfinished run needs it. The ledger stays.

    Args:
        older_than_days: Keep what is younger.
        remove: Move it to the bin, and empty the bin of what an earlier call put there; else only say what would go.
    """
    from storage.records.garbage import collect

    root = root_folder(os.environ.get("VARBAND_ROOT", ".varband"))
    found = collect(root, older_than=timedelta(days=older_than_days), remove=remove)
    megabytes, verb = sum(found["bytes"].to_pylist()) / 1e6, "moved or deleted" if remove else "would go"
    create_markdown_artifact(f"{found.num_rows} folders, {megabytes:.1f} MB: {verb}", key="gc")
    return found.num_rows
