"""Who solves what: problems solved under one policy only, under both, under neither."""

from __future__ import annotations

import pyarrow as pa

from storage.artifacts.kinds import Groups, Rollouts, SolvedBy
from storage.sql import query
from tasks.measures.grouping import read_groups
from tasks.measures.standard import standard_measure
from tasks.stage import stage


def solved_by_of(groups: pa.Table) -> pa.Table:
    """One row per problem and pair of policies. solved_by: `both`, `arm_only`, `other_only`, `neither`, by all
    rollouts, as published; `equal_n` says whether that was a fair count, for a policy that was sampled more often has
    more chances. chance_of_arm, chance_of_other: chance that the smaller of the two numbers of rollouts holds a correct
    one (pass@k at it). Two policies without a common problem have one row of nulls, with the reason.
    """
    return query(
        """
        with policies as (
            select arm, step, problem_id, any_value(source) as source, sum(num_correct)::bigint as num_correct,
                   sum(group_size)::bigint as group_size
            from groups group by arm, step, problem_id),
        paired as (
            select a.problem_id, a.source, a.arm, a.step, b.arm as other, b.step as other_step, a.num_correct,
                   a.group_size, b.num_correct as other_correct, b.group_size as other_group_size,
                   least(a.group_size, b.group_size) as k
            from policies a join policies b using (problem_id) where (a.arm, a.step) < (b.arm, b.step)),
        measured as (select distinct arm, step from policies),
        strangers as (
            select a.arm, a.step, b.arm as other, b.step as other_step
            from measured a join measured b on (a.arm, a.step) < (b.arm, b.step)
            except select arm, step, other, other_step from paired),
        judged as (select * exclude (k),
               case when num_correct > 0 and other_correct > 0 then 'both' when num_correct > 0 then 'arm_only'
                    when other_correct > 0 then 'other_only' else 'neither' end as solved_by,
               group_size = other_group_size as equal_n,
               pass_at_k(group_size, num_correct, k) as chance_of_arm,
               pass_at_k(other_group_size, other_correct, k) as chance_of_other
            from paired)
        from judged union all by name select *, 'no problem in common' as reason from strangers
        order by arm, step, other, other_step, source, problem_id
        """,
        groups=groups,
    ).cast(SolvedBy.schema)


@standard_measure("solved_by", rollouts="final")
@stage(SolvedBy, version=3)
def compare_solved(*, rollouts: tuple[Rollouts | Groups, ...]) -> pa.Table:
    """Per problem and pair of policies, who solved it."""
    return solved_by_of(read_groups(rollouts))
