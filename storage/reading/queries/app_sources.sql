-- Sources of the pool.
select distinct source from pool order by source
