-- Trainings that sampled one source far more often than its problems' share: `prompt_order` draws sources, not problems.
select 'source_share' as code,
       arm || ' sampled ' || printf('%.0f', 100.0 * groups / all_groups) || ' % of its groups from ' || source || ', which has '
           || problems || ' of its ' || all_problems || ' training problems' as fact,
       place, 'few problems were trained on again and again: the gain may be theirs; set training.prompt_order=proportional'
           as inference,
       (groups / all_groups) / (problems / all_problems) as value
from exposed where groups >= 10 and groups / all_groups > 5 * problems / all_problems
order by value desc, fact
