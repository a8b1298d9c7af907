/*
section = "training"
place = 72
title = "Parts of the reward by objective"
caption = """
What each part, times its weight, added to the mean reward: in the first step, and in the mean of the last steps."""
sources = ["objectives"]
empty = "no objective lists the parts of its reward (rewards)."
*/
-- The mean of each part of the reward at both ends of the trainings.
select o.arm, o.objective, substr(o.metric, len('reward_') + 1) as part, o.before as first_step, o.after as last_steps,
    o.seeds
from objectives o join arms a using (arm)
where starts_with(o.metric, 'reward_')
order by a.place, o.objective <> 'as the study has it', o.objective, part
