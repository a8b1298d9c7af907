-- needs: curves
-- Gain (pp) of a source from the first to the last evaluated step.
select 100 * any_value(estimate) as value from curves join artifacts using (ref)
where stage = 'import_trajectory' and series = 'gain' and source = $source having count(*) > 0
