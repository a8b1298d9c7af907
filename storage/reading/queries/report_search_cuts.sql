/*
section = "search"
place = 60
title = "Cost of a search, and cut requests"
caption = """
Mean per problem, to the end of its search. cut: requests that did not fit the model's context; the search continued \
without them, or ended."""
sources = ["searches"]
empty = "no search method was requested (search.methods)."
*/
-- Rounds, rollouts and tokens of every search, and requests that the context cut.
with problems as (
    select arm, step, method, adapter, problem_id, max(round) + 1 as rounds, count(*) filter (cut is null) as rollouts,
        sum(num_prompt_tokens) as prompt_tokens, sum(num_tokens) as completion_tokens,
        sum(num_scored_tokens) as scored_tokens, count(cut) as cut
    from searches group by all)
select method, arm, step, avg(rounds) as rounds, avg(rollouts) as rollouts, avg(prompt_tokens) as prompt_tokens,
    avg(completion_tokens) as completion_tokens, avg(scored_tokens) as scored_tokens, sum(cut)::bigint as cut, count(*) as problems
from problems join arms using (arm)
group by method, arm, step, place
order by method, place, step
