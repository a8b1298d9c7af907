-- Problems on which two runs differ most, per arm, after training (before, without a training).
with
first as (
    select arm, case when adapter in (select ref from trainings) then 'after' else 'before' end as phase, problem_id,
        any_value(source) as source, avg(correct::int) as rate
    from final group by all
),
second as (
    select arm, case when adapter in (select ref from trainings_b) then 'after' else 'before' end as phase, problem_id,
        avg(correct::int) as rate
    from final_b group by all
)
select arm, phase, source, problem_id, f.rate, s.rate as other_rate, s.rate - f.rate as difference_pp
from first f join second s using (arm, phase, problem_id)
where f.rate <> s.rate
order by abs(s.rate - f.rate) desc, arm, phase, problem_id
limit 500
