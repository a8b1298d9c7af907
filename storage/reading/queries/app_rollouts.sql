-- All rollouts of one problem in one set (final, screenings, evaluations), side by side by policy.
select r.arm, r.step, r.rollout, r.verdict, r.reason, r.answer, r.finish, r.num_tokens, r.tag_valid, r.grader_version,
    left(r.completion, $most) as completion, length(r.completion) as chars, r.ref
from query_table($set) r join arms a using (arm)
where r.problem_id = $problem
order by a.place, r.step, r.rollout, r.ref
