"""Runs by what people write: an id, the name of a study, which several runs may have, or how an id begins."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from storage.errors import Notice, UserError
from storage.records.runs import Run, all_runs

#: Of many of one name no more ids are said.
SAID = 8


def runs_named(root: Path, text: str) -> list[Run]:
    """The run of this id, else all of a study that people call so, else those whose ids start so; newest first."""
    runs = all_runs(root)
    for fits in (lambda run: run.id == text, lambda run: run.profile == text):
        if found := [*filter(fits, runs)]:
            return found
    return [run for run in runs if text and run.id.startswith(text)]


def run_named(root: Path, text: str) -> Run | None:
    """The one that is meant, null for none. Errors: UserError with their ids where it fits several."""
    found = runs_named(root, text)
    if len(found) > 1:
        raise UserError(f"{_several(text, found)}; name one by its id")
    return found[0] if found else None


def run_to_read(root: Path, text: str) -> Run | None:
    """As run_named, but of several of one name the newest that has a report, and a notice says so."""
    found = runs_named(root, text)
    taken = next((run for run in found if run.report is not None), None)
    if len(found) == 1 or taken is None or taken.profile != text:
        return run_named(root, text)
    said = f"{_several(text, found)}; this is of {taken.id}, the newest that has a report: an id asks for another"
    warnings.warn(Notice(said), stacklevel=2)
    return taken


def _several(text: str, found: Sequence[Run]) -> str:
    ids = ", ".join(f"{run.id} ({run.shown_state})" for run in found[:SAID])
    return f"'{text[:80]}' fits {len(found)} runs: {ids}{', …' if len(found) > SAID else ''}"
