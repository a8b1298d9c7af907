-- needs: training_pools
-- Problems of a published pool, of one source or of all.
select count(*) filter (where pool = $pool and ($source = 'all' or source = $source)) as value
from training_pools having count(*) > 0
