-- needs: bands
-- One cell of the cross-tab of panel (rows) and thinking (columns).
with b as (select arm, problem_id, band from bands join artifacts using (ref) where stage = 'import_bands')
select count(*) filter (where p.band = $band and t.band = $other_band) as value
from b p join b t using (problem_id) where p.arm = 'panel' and t.arm = 'thinking' having count(*) > 0
