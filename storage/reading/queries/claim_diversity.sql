-- needs: diversity, diversity_comparison
-- One figure of panel against another arm, of one imported file. field: mean | other_mean | relative (percent) | t |
-- per_token (ratio of distance per token) | length (ratio of mean lengths, other over panel).
with compared as (
    select mean, other_mean, 100 * relative as relative, t from diversity_comparison
    where metric = 'diversity' and basis = 'all' and source = 'all' and arm = 'panel' and other = $other
          and ref in (select ref from imports where path = $file)),
d as (
    select arm, problem_id, num_tokens from diversity where ref in (select ref from imports where path = $file)),
lengths as (
    select avg(a.num_tokens) as length, avg(b.num_tokens) as other_length
    from d a join d b using (problem_id) where a.arm = 'panel' and b.arm = $other)
select case $field
       when 'mean' then mean when 'other_mean' then other_mean when 'relative' then relative when 't' then t
       when 'per_token' then mean / length / (other_mean / other_length)
       when 'length' then other_length / length end as value
from compared cross join lengths
