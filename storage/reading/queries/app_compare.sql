-- Two runs, paired by problem: share of correct rollouts of each arm's start (before) and last adapter (after).
-- Intervals: 2,000 resamples of the problems, drawn by a hash, so the same every time.
with
first as (
    select arm, case when adapter in (select ref from trainings) then 'after' else 'before' end as phase, problem_id,
        avg(correct::int) as rate, avg(num_tokens) as tokens
    from final group by all
),
second as (
    select arm, case when adapter in (select ref from trainings_b) then 'after' else 'before' end as phase, problem_id,
        avg(correct::int) as rate, avg(num_tokens) as tokens
    from final_b group by all
),
paired as (
    select arm, phase, problem_id, f.rate, s.rate as other_rate, s.rate - f.rate as difference, f.tokens,
        s.tokens as other_tokens,
        row_number() over (partition by arm, phase order by problem_id) - 1 as place,
        count(*) over (partition by arm, phase) as n
    from first f join second s using (arm, phase, problem_id)
),
slots as (
    select n, draw, hash(draw, slot) % n as place
    from (select distinct n from paired), range(2000) draws(draw), lateral (select unnest(range(n)) as slot)
),
drawn as (
    select arm, phase, draw, avg(difference) as difference
    from slots join paired using (n, place) group by arm, phase, draw
),
intervals as (
    select arm, phase, quantile_cont(difference, 0.025) as low, quantile_cont(difference, 0.975) as high
    from drawn group by arm, phase
)
select
    arm, phase, count(*) as problems, avg(rate) as rate, avg(other_rate) as other_rate, avg(difference) as gain,
    any_value(i.low) as gain_low, any_value(i.high) as gain_high,
    count(*) filter (difference > 0) as better, count(*) filter (difference < 0) as worse,
    avg(tokens) as tokens, avg(other_tokens) as other_tokens
from paired join intervals i using (arm, phase)
group by arm, phase
order by arm, phase desc
