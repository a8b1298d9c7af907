-- needs: passk
-- pass@k of one arm in one evaluation's file.
select any_value(estimate) as value from passk
where metric = 'pass@k' and source = 'all' and arm = $arm and k = $k and step = 0
      and ref in (select ref from imports where path = $file)
having count(*) > 0
