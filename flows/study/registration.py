"""Preregistration of a study: its entry in the register, and earlier reports on the same question."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from flows.study.changes import value_text
from flows.study.reading import flat
from flows.study.resolve import Study
from storage.errors import UserError
from storage.records.register import Entry, entries
from storage.records.runs import all_runs, now

#: Settings that may grow after a look; the confidence sequence of the difference of gains allows it.
GROWING = ("seeds", "pool.heldout_per_source", "pool.limit", "final.group_size")
RULE = (
    "One arm gains more than another if the 95 % confidence sequence of the difference of their gains at the last step,"
    " over problems and training seeds, excludes 0. Seeds, problems and rollouts may be added after any look."
)


def entry_of(study: Study, names: Iterable[str], rule: str, *, sampled: bool) -> Entry:
    profile = study.profile
    question = ". ".join(filter(None, (profile.about.rstrip("."), study.in_numbers)))
    about = {"study": profile.called, "question": question, "rule": rule or RULE, "names": tuple(names)}
    return Entry(**about, at=now(), sampled=sampled, settings=study.settings)


def registered(study: Study, root: Path) -> str:
    """Return a sentence: whether it was registered before sampling, when and by whom, and which settings changed
    since."""
    try:
        own = [entry for entry in entries(root) if entry.study == study.profile.called]
    except UserError as error:
        return f"Whether it was registered before sampling is not known: {error}."
    found = next((entry for entry in reversed(own) if not entry.sampled), own[-1] if own else None)
    if found is None:
        return "Not registered before sampling."
    when = "after sampling had begun" if found.sampled else "before sampling"
    before, after = (dict(flat(tomllib.loads(text))) for text in (found.settings, study.settings))
    moved = [
        f"{path}: {value_text(before.get(path))} → {value_text(after.get(path))}"
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path)
    ]
    changed = f" Changed since: {'; '.join(moved)}." if moved else ""
    return f"Registered {when}, on {found.at[:10]} by {', '.join(found.names)}.{changed}"


def earlier_looks(study: Study, root: Path) -> tuple[str, ...]:
    """Return reports on the same question with fewer or other seeds, problems or rollouts, newest first."""

    def fixed(changes: Iterable[str]) -> set[str]:
        return {change for change in changes if not change.startswith(tuple(f"{path}: " for path in GROWING))}

    same = (run for run in all_runs(root) if run.profile == study.profile.called)
    return tuple(run.report for run in same if run.report and fixed(run.changes) == fixed(study.changes))
