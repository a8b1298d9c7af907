/*
section = "diversity"
place = 60
title = "Diversity of final answers, without an encoder"
caption = "Differences between the final answers of a group. Every measure is 0 for a policy that is always right."
sources = ["answers"]
empty = "answer diversity was not measured in this run."
*/
-- Diversity of the final answers of a group, by policy, without an encoder. Means over problems.
select
    w.arm, w.step, count(*) as problems, avg(w.answered) as answered, avg(w.entropy) as entropy_nats,
    avg(w.disagreement) as disagreement, avg(w."distinct") as distinct_answers, avg(w.distinct_of_4) as distinct_of_4,
    avg(w.distinct_wrong) as distinct_wrong
from answers w join arms a using (arm)
group by w.arm, a.place, w.step
order by a.place, w.step
