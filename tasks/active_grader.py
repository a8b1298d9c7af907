"""The active grader of a store: the installed version with people's overrides. Studies and sessions are pinned."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from storage.records.overrides import newest_overrides
from tasks.domain.grading.overrides import ActiveGrader, read_overrides
from tasks.engines.grading.verdicts import with_verdicts
from tasks.stage import toolbox


def active_grader(root: Path) -> ActiveGrader:
    """The grader that is active in this store now."""
    return ActiveGrader(overrides=read_overrides(*newest_overrides(root)))


def actively_graded(rows: pa.Table) -> pa.Table:
    """Ledger rows, in their order, with the verdicts of the session's grader; those that have them are left alone."""
    tools = toolbox()
    old = [i for i, v in enumerate(rows["grader_version"].to_pylist()) if v != tools.grader.version]
    if not old:
        return rows
    stale = rows.take(pa.array(old, pa.int64()))
    fresh = with_verdicts(stale, stale["gold"].to_pylist(), tools.graders(), tools.grader.overrides)
    place = list(range(rows.num_rows))
    for new, i in enumerate(old, start=rows.num_rows):
        place[i] = new
    return pa.concat_tables([rows, fresh]).take(pa.array(place, pa.int64()))
