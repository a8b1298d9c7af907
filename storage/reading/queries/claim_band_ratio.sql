-- needs: bands
-- Ratio of two arms' variance bands.
select count(*) filter (where arm = $arm) / nullif(count(*) filter (where arm = $other), 0) as value
from bands join artifacts using (ref) where stage = 'import_bands' and is_variance(band)
