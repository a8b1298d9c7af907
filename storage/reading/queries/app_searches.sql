-- Every search of a run: method, policy and problem.
select distinct s.method, s.arm, s.step, s.seed, s.problem_id, a.place
from searches s join arms a using (arm) order by s.method, a.place, s.step, s.seed, s.problem_id
