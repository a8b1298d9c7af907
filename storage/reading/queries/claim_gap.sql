-- needs: passk_contrasts
-- Gap (panel minus thinking, pp) at k, or its closure, on the problems of one evaluation's file.
select any_value(100 * estimate) as value from passk_contrasts
where metric = $metric and source = 'all' and arm = 'panel' and other = 'thinking' and k = $k
      and ref in (select ref from imports where path = $file)
having count(*) > 0
