"""What is recorded beside the artifacts of a store, as rows for whoever looks: runs, their spending, drift;
and what a report says in words."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.records.drift import drift_notes
from storage.records.runs import Run, all_runs, runs_table
from storage.records.spending import spending_by_arm
from storage.roots import linkless
from storage.sql import named, query


def listed_runs(root: Path) -> pa.Table:
    """Every run, newest first. Columns: those of query `app_runs`."""
    return query(named("app_runs"), runs=runs_table(root))


def running(root: Path) -> list[Run]:
    """Runs at work now."""
    return [run for run in all_runs(root) if run.shown_state == "running"]


def run_of(root: Path, report: str) -> Run | None:
    """The run that made a report; null if none is recorded."""
    return next((run for run in all_runs(root) if run.report == report), None)


def spending_of(root: Path, report: str) -> pa.Table | None:
    """What the run of a report was charged, by arm; null if no run, or no charge, is recorded."""
    run = run_of(root, report)
    spent = spending_by_arm(root, run.id) if run else None
    return spent if spent is not None and spent.num_rows else None


def drift(root: Path) -> pa.Table:
    """Figures that a nightly re-evaluation found outside their interval, open ones first."""
    return drift_notes(root)


def answer_of(root: Path, report: str) -> str:
    """What a report says in words, with what to know before believing it, as its Markdown has it; empty for one that
    has no page."""
    page = linkless(Store(root).files(Ref.parse(report)), "report.md")
    if not page.is_file():
        return ""
    return page.read_text(encoding="utf-8").partition("\n## The answer\n")[2].partition("\n## ")[0].strip()
