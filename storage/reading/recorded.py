"""Data for dashboards other than artifacts: runs, spending, nights, the text of a report, and running trainings."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import TRAINING_METRICS, Training
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.figures import Figure, answer_figure
from storage.reading.query_cache import report_inputs
from storage.records.record import last_nights as last_nights  # because dashboards must not import records
from storage.records.runs import Run, all_runs, runs_table
from storage.records.spending import spending_by_arm
from storage.roots import linkless
from storage.sql import named, query


def listed_runs(root: Path) -> pa.Table:
    """Return all runs, newest first. Columns: see the query `app_runs`."""
    return query(named("app_runs"), runs=runs_table(root))


def running(root: Path) -> list[Run]:
    return [run for run in all_runs(root) if run.current_state == "running"]


def run_of(root: Path, report: str) -> Run | None:
    """Return the run that made a report; None if there is no such run."""
    return next((run for run in all_runs(root) if run.report == report), None)


def spending_of(root: Path, report: str) -> pa.Table | None:
    """Return the costs of a report's run by arm; None if there is no such run."""
    run = run_of(root, report)
    spent = spending_by_arm(root, run.id) if run else None
    return spent if spent is not None and spent.num_rows else None


def in_words(root: Path, report: str) -> str:
    """Return the sentences of a report as Markdown; empty if it has no page."""
    page = linkless(Store(root).files(Ref.parse(report)), "report.md")
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    words = text.partition("\n## In words\n")[2] or text.partition("\n## The answer\n")[2]  # heading of older versions
    return words.partition("\n## ")[0].strip()


def first_screen(root: Path, report: str) -> dict[str, Any]:
    """Return the first screen of a report: the verdict, what it holds for, tiles, a sentence on the audit, and the
    labels of differences that are not drawn."""
    path = linkless(Store(root).files(Ref.parse(report)), "answer.json")
    return orjson.loads(path.read_bytes()) if path.is_file() else {}


def question_of(root: Path, report: str) -> str:
    """Return the question of a report's study; empty for an older version. The question is the report's title."""
    asks = str(Store(root).manifest(Ref.parse(report)).recipe.arguments.get("asks", ""))
    return asks[:1].upper() + asks[1:]


def answering(root: Path, report: str) -> Figure:
    """Return the figure that answers the question of a report's study."""
    inputs = report_inputs(Store(root).manifest(Ref.parse(report)).recipe)
    return answer_figure(inputs, question_of(root, report))


#: Columns that a page may plot by step.
METRICS = (*TRAINING_METRICS, "num_tokens")
LIVE = Training.schema.append(pa.field("ref", pa.string()))


def live_steps(root: Path) -> pa.Table:
    """Return the steps of unfinished trainings, from their checkpoints. Schema: LIVE. An unknown arm is `?`."""
    store, arms, rows = Store(root), None, []
    for folder in sorted((root / ".work").glob("training-*")):
        ref = Ref.named(folder.name)
        if ref is None or (store.path(ref) / "manifest.json").exists():
            continue
        states = (folder / "checkpoints").glob("step-*/state.json")
        newest = max(states, key=lambda state: int(state.parent.name.removeprefix("step-")), default=None)
        if newest is None:
            continue
        try:
            steps = orjson.loads(newest.read_bytes())["steps"]
        except (OSError, ValueError, KeyError):  # the next checkpoint replaced the file while it was read
            continue
        arms = _arms(root) if arms is None else arms
        known = {"arm": arms.get(str(ref), "?"), "ref": str(ref)}
        rows += [{name: known.get(name, step.get(name)) for name in LIVE.names} for step in steps]
    return pa.Table.from_pylist(rows, schema=LIVE)


def training_states(steps: pa.Table) -> pa.Table:
    """Return the present state of every training in `live_steps`. Columns: see the query `app_live`."""
    return query(named("app_live"), steps=steps)


def _arms(root: Path) -> dict[str, str]:
    """Return the arm of each training that the ledger has rollouts of."""
    accounts = (about for _, about in Ledger(root).accounts())
    return {str(about["adapter"]): str(about.get("arm", "?")) for about in accounts if about.get("adapter")}
