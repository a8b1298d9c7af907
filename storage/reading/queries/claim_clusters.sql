-- needs: diversity
-- Mean number of DBSCAN clusters.
select avg(clusters) as value from diversity join artifacts using (ref)
where stage = 'import_diversity' and arm = $arm and "window" = 'head2000chars' and (source like 'AIME%') = ($problems = 'aime')
