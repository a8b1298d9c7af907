-- needs: curves
-- Printed held-out accuracy (percent) at a step.
select 100 * any_value(estimate) as value from curves join artifacts using (ref)
where stage = 'import_trajectory' and series = 'heldout' and step = $step and source = $source having count(*) > 0
