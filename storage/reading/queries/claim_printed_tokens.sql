-- needs: token_checks
-- A figure of the printed token table that follows from others in it.
select any_value(follows) as value from token_checks where bench = $bench and "check" = $check having count(*) > 0
