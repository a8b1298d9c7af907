-- needs: diversity
-- Mean number of DBSCAN clusters.
select avg(clusters) as value from diversity where arm = $arm and ref in (select ref from imports where path = $file)
