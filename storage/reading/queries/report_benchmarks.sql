/*
section = "benchmarks"
place = 10
title = "What is asked"
caption = """
Problems of each benchmark's levels. near_training: left out, because they stand or nearly stand among this \
study's training problems, of any arm and lesson; contained: of these, word for word; not_drawn: of a level that \
had more than enough."""
sources = ["benchmarks"]
*/
-- Which problems of each benchmark are asked, and why others are not.
select benchmark, count(*) as problems, count(*) filter (split = 'benchmark') as asked,
    count(*) filter (split = 'near_training') as near_training,
    count(*) filter (split = 'near_training' and similarity = 1) as contained,
    count(*) filter (split = 'not_drawn') as not_drawn,
    string_agg(source_id, ', ' order by source_id) filter (split = 'near_training') as left_out
from benchmarks
where split <> 'other_level'
group by ref, benchmark
order by benchmark
