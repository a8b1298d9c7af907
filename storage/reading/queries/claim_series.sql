-- needs: training_series
-- Mean of a training series over steps.
select avg(value) as value from training_series where metric = $metric and step between $first and $last
