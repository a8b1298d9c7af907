-- Length ratios of arms with truncated rollouts.
select 'truncation' as code,
       case when truncated_bound then 'at least ' else '' end || printf('%.1f', 100 * truncated) || ' % of the rollouts of ' || arm || ' on ' || problems || ' end at max_tokens'
       || coalesce(' ' || max_tokens, '') as fact,
       place, 'their true lengths and answers are unknown: the mean length is a lower bound, a ratio of lengths only one to an arm'
           || ' of which nothing is cut; accuracy is what the cap allows' as inference,
       truncated as value
from designs where truncated > 0.05
order by truncated desc, fact
