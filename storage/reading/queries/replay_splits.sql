-- Do the published pools follow from the bands? Training pools are an arm's variance band without the evaluation set.
with heldout as (select problem_id from pools where pool = 'heldout_eval'),
     live as (select arm, problem_id from bands where is_variance(band) and problem_id not in (from heldout)),
     pool_of as (select replace(pool, '_train', '') as arm, problem_id from pools where pool like '%_train')
select (select count(distinct problem_id) from pools) as problems,
       (select count(*) from heldout semi join (from pool_of) using (problem_id)) as heldout_in_training,
       (select count(*) from live anti join pool_of using (arm, problem_id)) as live_but_not_trained,
       (select count(*) from pool_of anti join live using (arm, problem_id)) as trained_but_not_live,
       (select count(*) from (select problem_id from pool_of group by problem_id having count(*) = 2)) as in_both_training_pools,
       (select count(*) from bands semi join heldout using (problem_id) where arm = 'panel' and is_variance(band))
           as heldout_live_panel,
       (select count(*) from bands semi join heldout using (problem_id) where arm = 'thinking' and is_variance(band))
           as heldout_live_thinking
