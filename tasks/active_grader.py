"""The active grader of a store: the installed version with people's overrides. Studies and sessions are pinned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from storage.records.overrides import newest_overrides
from tasks.domain.grading.kinds import RAISED
from tasks.domain.grading.overrides import ActiveGrader, read_overrides
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.verdicts import with_verdicts
from tasks.stage import toolbox


def active_grader(root: Path) -> ActiveGrader:
    """The grader that is active in this store now."""
    return ActiveGrader(overrides=read_overrides(*newest_overrides(root)))


def actively_graded(rows: pa.Table, scaffold: Scaffold | None = None, stands: Sequence[bool] | None = None) -> pa.Table:
    """Ledger rows, in their order, with the verdicts of the session's grader; those that have them are left alone, but
    for those on which another package's grader raised: it may have been mended. Errors: UserError if it raises always.

    scaffold: reads every row; null: each row's arm as it is today. stands: rows whose verdicts are
    of this reading and of their gold; null: all are.
    """
    tools = toolbox()
    versions = rows["grader_version"].to_pylist()
    raised = [str(reason).startswith(RAISED) for reason in rows["reason"].to_pylist()]
    old = [
        i
        for i, v in enumerate(versions)
        if v != tools.grader.version or raised[i] or (stands is not None and not stands[i])
    ]
    if not old:
        return rows
    stale = rows.take(pa.array(old, pa.int64()))
    golds = stale["gold"].to_pylist()
    fresh = with_verdicts(stale, golds, tools.graders(), tools.grader.overrides, scaffold=scaffold)
    if scaffold is not None:
        tools.graders().refuse_broken(scaffold.answer_kind)
    place = list(range(rows.num_rows))
    for new, i in enumerate(old, start=rows.num_rows):
        place[i] = new
    return pa.concat_tables([rows, fresh]).take(pa.array(place, pa.int64()))
