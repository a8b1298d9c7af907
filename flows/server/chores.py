"""What a team has done beside its studies: the nightly re-evaluation, regrading, collecting garbage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Annotated, Any

from prefect import flow  # noqa: TID253
from prefect.artifacts import create_markdown_artifact, create_table_artifact  # noqa: TID253
from prefect.states import Cancelled, Completed, Failed  # noqa: TID253
from pydantic import Field

from flows.running.prefect_tasks import PARKED
from flows.running.priced import Priced
from flows.running.sessions import Charging, Listener, stages_on
from flows.server.workplace import opened, opened_store, telling, this_run
from flows.study.forms import BudgetForm, StudyForm
from flows.study.resolve import Study
from flows.upkeep.reeval import Checked, reevaluate
from flows.upkeep.regrading import regrade_store
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.roots import root_folder
from tasks.metering import metered

#: Names of the states of a night that is not green: a figure left its interval; something was not compared.
DRIFTED, UNCHECKED = "Drifted", "Unchecked"
#: A run that was lost is started again by itself within this time: no second call, which empties the bin.
RESTARTED_WITHIN = timedelta(hours=1)
#: Of what is collected a page names no more than so many.
SHOWN = 1000


@flow(name="reeval", persist_result=False)
def reeval(studies: list[StudyForm] = [], pinned: list[str] = [], budget: BudgetForm = BudgetForm()) -> Any:  # noqa: B006, B008
    """Evaluate kept adapters on the held-out problems again. Costs nothing while nothing has changed.

    Args:
        studies: Whose newest adapters; empty, without pinned ones too: every finished run's of this root.
        pinned: More adapters, as training-<fingerprint>@<step>, of whatever study.
        budget: The most that this night may spend.
    """
    store = opened_store()
    run = f"reeval-{str(this_run().id)[:8]}"  # a night has a budget of its own

    def charged(study: Study) -> AbstractContextManager[Listener]:
        return metered(Charging.of(study, store, run, budget.budget()).meter(study, store), telling())

    found: list[Checked] = []
    try:
        for one in reevaluate(store, [_resolved(form, store) for form in studies], pinned, charged):
            found.append(one)
    except Parked as wall:
        _tell(found)
        return Cancelled(name=PARKED, message=f"{len(found)} adapters were looked at; {wall}")
    return _tell(found)


def _resolved(form: StudyForm, store: Store) -> Study | Checked:
    """Or why it cannot be looked at on this worker; the others are."""
    try:
        return form.request().study(store)
    except UserError as error:
        return Checked(f"adapters of {form.request().profile}", "unchecked", str(error))


def _tell(found: Sequence[Checked]) -> Any:
    """The night's table, and its state: green only if everything that was wanted was compared and held."""
    of = {state: [c for c in found if c.state == state] for state in ("drifted", "unchecked", "holds")}
    counts = f"{len(of['holds'])} hold, {len(of['drifted'])} drifted, {len(of['unchecked'])} were not checked"
    create_table_artifact([one.row() for one in found], key="nightly", description=counts)
    bad = "; ".join(f"{c.adapter}: {c.row()['tonight']} {c.said}" for c in (*of["drifted"], *of["unchecked"]))
    if of["drifted"]:
        return Failed(name=DRIFTED, message=f"{counts}: {bad}"[:1000])
    if of["unchecked"] or not found:
        nothing = "there is no adapter to look at: name a study or an adapter, or finish a run in this root"
        return Failed(name=UNCHECKED, message=f"{counts}: {bad or nothing}"[:1000])
    return Completed(message=counts)


@flow(name="regrade", persist_result=False)
def regrade() -> int:
    """Grade all stored rollouts with the grader that is installed; samples nothing, overwrites nothing."""
    store = opened_store()
    with stages_on(store, telling()):
        found = regrade_store(store)
    sentences = "\n".join(f"- {sentence}" for sentence in found.sentences())
    create_markdown_artifact(sentences, key="regrade", description=f"{found.changes.num_rows} verdicts changed")
    return found.changes.num_rows


@flow(name="plan", persist_result=False)
def plan(study: StudyForm = StudyForm(), budget: BudgetForm = BudgetForm()) -> str:  # noqa: B008
    """What a study would make, reuse and cost, stage by stage, and what it could see. Makes and fetches nothing.

    Args:
        study: Which study.
        budget: Whether this would hold it.
    """
    chosen, store = opened(study, planning=True)
    priced = Priced.of(chosen, store, budget.budget().over(chosen.profile.budget))
    create_markdown_artifact(priced.markdown(), key="plan", description=priced.called)
    return "; ".join(priced.sentences())


@flow(name="gc", persist_result=False)
def gc(older_than_days: Annotated[float, Field(ge=0, le=36_500)] = 7.0, remove: bool = False) -> int:
    """What nobody wants any more: no report, adapter, pin or unfinished run needs it. The ledger stays.

    Args:
        older_than_days: Keep what is younger.
        remove: Move it to the bin, and empty the bin of what lay there for an hour; else only say what would go.
    """
    from storage.records.garbage import collect

    root = root_folder(os.environ.get("VARBAND_ROOT", ".varband"))
    if not root.is_dir():
        raise UserError(f"VARBAND_ROOT={root}: there is no such folder on this worker, so nothing was looked at")
    found = collect(root, older_than=timedelta(days=older_than_days), remove=remove, binned_for=RESTARTED_WITHIN)
    megabytes, verb = sum(found["bytes"].to_pylist()) / 1e6, "moved or deleted" if remove else "would go"
    said = f"{found.num_rows} folders, {megabytes:.1f} MB: {verb}"
    create_table_artifact(found.slice(0, SHOWN).to_pylist(), key="gc", description=said)
    return found.num_rows
