-- needs: passk
-- pass@k of one arm on a slice, told by its number of problems.
select any_value(estimate) as value from passk
where metric = 'pass@k' and source = 'all' and arm = $arm and k = $k and n = $n and step = 0 having count(*) > 0
