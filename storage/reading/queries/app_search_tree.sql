-- The nodes of one problem's search by one seed's policy, round by round, numbered, with their parents.
with nodes as (
    select *, row_number() over (order by round, split_part(node, '/', 1), split_part(node, '/', 2)::int) as number
    from searches where problem_id = $problem and method = $method and arm = $arm and step = $step and seed = $seed)
select n.number, n.round, n.operator, n.answer, n.correct, n.cut, n.completion, n.chosen_answer, n.chosen_correct,
    n.num_prompt_tokens + n.num_tokens + n.num_scored_tokens as tokens, n.score,
    (select string_agg('#' || p.number, ', ' order by p.number) from nodes p
     where list_contains(string_split(n.parents, ' '), p.node)) as made_of
from nodes n order by n.number
