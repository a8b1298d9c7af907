-- Trainings whose learner assumes another sampling distribution than that of its rollouts.
select 'behaviour' as code,
       arm || ' was trained on rollouts of temperature ' || temperature || ' and top_p ' || top_p
       || ', which the learner read at temperature ' || learned_at || ' without a nucleus' as fact,
       place, 'every ratio of policy and behaviour is off, so the gradient is not that of the policy that sampled' as inference,
       temperature as value
from designs where role = 'training' and (temperature <> learned_at or top_p < 1) order by fact, place
