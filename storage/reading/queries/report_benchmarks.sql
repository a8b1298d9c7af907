/*
section = "benchmarks"
place = 10
title = "Problems of each benchmark"
caption = """
near_training: excluded, because they are near-duplicates of training problems of any arm or lesson; contained: \
exact copies among these; not_drawn: left out because the level had more problems than needed."""
sources = ["benchmarks"]
*/
-- The evaluated problems of each benchmark, and the reasons for excluding others.
select benchmark, count(*) as problems, count(*) filter (split = 'benchmark') as asked,
    count(*) filter (split = 'near_training') as near_training,
    count(*) filter (split = 'near_training' and similarity = 1) as contained,
    count(*) filter (split = 'not_drawn') as not_drawn,
    string_agg(source_id, ', ' order by source_id) filter (split = 'near_training') as left_out
from benchmarks
where split <> 'other_level'
group by ref, benchmark
order by benchmark
