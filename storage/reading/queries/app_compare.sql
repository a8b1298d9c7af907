-- Two runs, paired by problem: share of correct rollouts of each arm's start (before) and last adapter (after).
-- Intervals: over the problems (storage/estimates.py); none if both runs share the same rollouts.
with
first as (
    select arm, case when adapter in (select ref from trainings) then 'after' else 'before' end as phase, problem_id,
        avg(correct::int) as rate, avg(num_tokens) as tokens, list(distinct ref order by ref) as refs
    from final group by all
),
second as (
    select arm, case when adapter in (select ref from trainings_b) then 'after' else 'before' end as phase, problem_id,
        avg(correct::int) as rate, avg(num_tokens) as tokens, list(distinct ref order by ref) as refs
    from final_b group by all
),
paired as (
    select arm, phase, problem_id, f.rate, s.rate as other_rate, s.rate - f.rate as difference, f.tokens,
        s.tokens as other_tokens, f.refs = s.refs as same
    from first f join second s using (arm, phase, problem_id)
),
intervals as (
    select arm, phase, interval_over_problems(list(difference order by problem_id)) as ends
    from paired group by arm, phase having not bool_and(same)
)
select
    arm, phase, count(*) as problems, avg(rate) as rate, avg(other_rate) as other_rate, avg(difference) as difference_pp,
    any_value(ends[1]) as difference_pp_low, any_value(ends[2]) as difference_pp_high,
    count(*) filter (difference > 0) as better, count(*) filter (difference < 0) as worse,
    avg(tokens) as tokens, avg(other_tokens) as other_tokens,
    case when bool_and(same) then 'the same rollouts' end as reason
from paired left join intervals using (arm, phase)
group by arm, phase
order by arm, phase desc
