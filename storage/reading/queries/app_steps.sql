-- Every step of a run's trainings, for one chosen metric at a time.
select t.* exclude (ref), t.ref as training
from trainings t left join arms a using (arm)
order by a.place, t.seed, t.step
