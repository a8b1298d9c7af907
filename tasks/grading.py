"""Verdicts of the active grader on ledger rows, and the equality of answers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from storage.errors import UserError
from storage.records.record import newest_overrides
from tasks.domain.grading.grading import ActiveGrader, read_overrides
from tasks.domain.grading.kinds import OWN, RAISED
from tasks.domain.partitions import Equal, Pair
from tasks.domain.scaffolds import BARE, MATH, Scaffold
from tasks.engines.grading.graders import GradeItem, Graders, with_verdicts
from tasks.stage import toolbox


def active_grader(root: Path) -> ActiveGrader:
    return ActiveGrader(overrides=read_overrides(*newest_overrides(root)))


def installed_graders(version: str) -> Graders:
    """Return the installed grader. Raise UserError if the grader has another version."""
    graders = toolbox().graders()
    if graders.version != version:
        raise UserError(f"grader {version} is not the installed grader ({graders.version})")
    return graders


def actively_graded(rows: pa.Table, scaffold: Scaffold | None = None, stands: Sequence[bool] | None = None) -> pa.Table:
    """Return ledger rows, in order, with verdicts of the active grader.

    A verdict that exists is kept, unless a plug-in raised an error there, because the plug-in may have been fixed.
    scaffold: parses every row; None takes the scaffold of each row's arm. stands: whether each row's verdict was made
    with this parser and gold; None means all were. Raise UserError if the grader always raises an error.
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


def by_grader(graders: Graders, kind: str = MATH) -> Equal:
    """Return a function that compares pairs of answers. Two answers are equal if each is correct with the other as
    gold. Plug-ins run in processes that can be killed. For built-in kinds other than mathematics, answers are equal
    only if their texts are equal."""
    bare = replace(BARE["tag"], answer_kind=kind)

    def equal(pairs: Sequence[Pair]) -> Sequence[bool]:
        if kind in OWN:
            return [False] * len(pairs)
        accepted = set(pairs)
        for turn in (1, -1):  # the second direction is graded only for pairs that are equal in the first
            there = [pair[::turn] for pair in accepted]
            verdicts = graders.grade([GradeItem(bare, bare.answer_in_form(a), b) for a, b in there])
            accepted = {pair[::turn] for pair, one in zip(there, verdicts, strict=True) if one.correct}
        return [pair in accepted for pair in pairs]

    return equal
