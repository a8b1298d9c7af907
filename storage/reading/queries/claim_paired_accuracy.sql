-- needs: token_checks
-- Accuracy (percent) of an arm over the paired draws of the token table, which are not all of its rollouts.
select 100 * any_value(follows) filter (where "check" = $arm || ' correct = both + ' || $arm || ' only')
       / any_value(follows) filter (where "check" = 'pairs are problems × rollouts') as value
from token_checks where bench = $bench having count(*) > 0
