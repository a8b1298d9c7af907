-- needs: diversity_comparison
-- The p of the paired t of panel against thinking under Student's distribution.
select any_value(p_t) as value from diversity_comparison
where metric = 'diversity' and basis = 'all' and arm = 'panel' and other = 'thinking'
      and ref in (select ref from imports where path = $file)
having count(*) > 0
