-- needs: passk_contrasts
-- Gap (panel minus thinking, pp) at k, or its closure, on a slice told by its number of problems.
select any_value(100 * estimate) as value from passk_contrasts
where metric = $metric and source = 'all' and arm = 'panel' and other = 'thinking' and k = $k and n = $n
having count(*) > 0
