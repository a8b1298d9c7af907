-- Problems of one set of rollouts (final, screenings, evaluations), with the results of each policy. A null filter keeps all.
with
counted as (
    select problem_id, arm, step, count(*) as n, count(*) filter (where correct) as num_correct,
        bool_or(verdict = $verdict) as has_verdict
    from query_table($set) group by problem_id, arm, step
),
judged as (
    select *, band(num_correct, n) as band from counted
)
select
    p.problem_id, p.source, p.gold, left(p.problem, 160) as problem,
    string_agg(j.arm || case when j.step > 0 then ' @' || j.step else '' end || ' ' || j.num_correct || '/' || j.n, ', '
        order by a.place, j.step) as correct
from pool p
join judged j using (problem_id)
join arms a using (arm)
where ($source is null or p.source = $source)
    and ($search is null or contains(lower(p.problem), lower($search)) or p.problem_id = $search or p.gold = $search)
group by p.problem_id, p.source, p.gold, p.problem
having ($band is null or bool_or(j.band = $band and ($arm is null or j.arm = $arm)))
    and ($verdict is null or bool_or(j.has_verdict and ($arm is null or j.arm = $arm)))
order by p.source, p.problem_id
limit 2000
