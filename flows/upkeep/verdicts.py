"""Stored rollouts under another grader: which verdicts change."""

from __future__ import annotations

from collections.abc import Callable

from flows.running.plan import plan
from flows.running.sessions import stages_of
from flows.study.resolve import Study
from storage.artifacts.kinds import Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.sql import query
from tasks.regrading import regrade
from tasks.stage import Progress


def graded_otherwise(store: Store, before: Ref, after: Ref) -> int:
    """Verdicts that differ between two gradings of the same rollouts."""
    columns = ["problem_id", "rollout", "correct"]
    return query(
        "select count(*) n from b join a using (problem_id, rollout) where a.correct <> b.correct",
        b=store.read(before, columns),
        a=store.read(after, columns),
    )["n"][0].as_py()


def regraded(study: Study, store: Store, listener: Callable[[Progress], None]) -> dict[str, int]:
    """Rollouts of the study that exist, judged by the study's grader: ref → verdicts that changed."""
    changed = {}
    with stages_of(study, store, listener):
        for planned in plan(study, store):
            ref, given = planned.step.ref, planned.step.arguments
            if planned.reused and isinstance(ref, Rollouts) and "policy" in given:  # sampled ones
                now = regrade(rollouts=ref, pool=given["pool"], grader=study.grader)
                changed[str(ref)] = graded_otherwise(store, ref, now)
    return changed
