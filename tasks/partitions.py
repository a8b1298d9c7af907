"""Answer classes: which rollouts of a problem gave the same answer, by the grader and not by spelling.

Votes, entropy, disagreement and distinct answers all count these classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from storage.artifacts.kinds import Partitions, Rollouts
from storage.errors import UserError
from storage.sql import query
from tasks.domain.partitions.by_answer import INTEGER, Equal, Pair, same_answers
from tasks.domain.scaffolds import NO_PANEL
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.stage import stage, store, toolbox

COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "canonical", "correct"]


@stage(Partitions, version=1)
def partition_rollouts(*, rollouts: Rollouts, grader_version: str) -> pa.Table:
    """The class of every rollout's answer, by the grader of this version."""
    graders = toolbox().graders()
    if graders.version != grader_version:
        raise UserError(f"grader {grader_version} is not the one installed ({graders.version})")
    return partitions_of(store().read(rollouts, COLUMNS), by_grader(graders))


def by_grader(graders: Graders) -> Equal:
    """Two answers are the same if each is correct where the other is the gold. In processes that can be killed."""

    def equal(pairs: Sequence[Pair]) -> Sequence[bool]:
        asked = [*pairs, *((b, a) for a, b in pairs)]
        verdicts = graders.grade([GradeItem("no_panel", NO_PANEL.answer_in_form(a), b) for a, b in asked])
        return [
            one.correct and back.correct
            for one, back in zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)
        ]

    return equal


def partitions_of(rollouts: pa.Table, equal: Equal) -> pa.Table:
    """One row per rollout. Schema: Partitions.

    answer_class: 0 for every correct answer of a problem; 1, 2, … for its wrong ones, in the order of their texts; null
    without an answer that could be compared. Wrong answers share a class if a chain of equal pairs joins them.
    """
    wrong = query(
        """
        select problem_id, list(distinct canonical order by canonical) as texts
        from rollouts where not correct and canonical is not null
        group by problem_id having count(distinct canonical) > 1
            and not bool_and(regexp_full_match(canonical, $integer)) order by problem_id
        """,
        {"integer": INTEGER.pattern},
        rollouts=rollouts,
    ).to_pylist()
    same = same_answers({row["problem_id"]: row["texts"] for row in wrong}, equal)
    columns = ["problem_id", "canonical", "told_as"]
    merged = pa.table(
        [pa.array(column, pa.string()) for column in (zip(*same, strict=True) if same else ((), (), ()))], columns
    )
    return query(
        """
        with said as (
            select r.*, coalesce(m.told_as, r.canonical) as told
            from rollouts r left join merged m using (problem_id, canonical)),
        classes as (
            select problem_id, told, row_number() over (partition by problem_id order by told)::integer as answer_class
            from (select distinct problem_id, told from said where not correct and told is not null))
        select s.problem_id, s.arm, s.adapter, s.step, s.seed, s.rollout,
               case when s.correct then 0 else c.answer_class end as answer_class
        from said s left join classes c using (problem_id, told)
        order by s.problem_id, s.arm, s.step, s.seed, s.adapter, s.rollout
        """,
        rollouts=rollouts,
        merged=merged,
    ).cast(Partitions.schema)
