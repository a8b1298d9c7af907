select distinct source from pool order by source
