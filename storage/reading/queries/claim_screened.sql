-- needs: bands, splits
-- pass@1 (percent) of an arm at screening on one side of the split.
select 100 * avg(num_correct / group_size) as value
from bands b join artifacts using (ref) join splits s using (problem_id)
where stage = 'import_bands' and b.arm = $arm and split = $split and ($source = 'all' or b.source = $source)
