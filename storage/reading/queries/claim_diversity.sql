-- needs: diversity
-- One figure of panel against another arm, from the distances of one imported file. field: mean | other_mean | relative
-- (percent) | t | per_token (ratio of distance per token) | length (ratio of mean lengths, other over panel).
with d as (
    select arm, problem_id, diversity, num_tokens from diversity where ref in (select ref from imports where path = $file)),
pairs as (
    select a.diversity as x, b.diversity as y, a.num_tokens as n, b.num_tokens as m
    from d a join d b using (problem_id) where a.arm = 'panel' and b.arm = $other)
select case $field
       when 'mean' then avg(x) when 'other_mean' then avg(y) when 'relative' then 100 * (avg(x) / avg(y) - 1)
       when 't' then avg(x - y) / (stddev_samp(x - y) / sqrt(count(*)))
       when 'per_token' then avg(x) / avg(n) / (avg(y) / avg(m)) when 'length' then avg(m) / avg(n) end as value
from pairs
