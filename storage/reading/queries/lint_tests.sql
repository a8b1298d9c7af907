-- p-values of t statistics that were computed with the normal distribution.
select 'normal_p' as code,
       test || ': t = ' || printf('%.2f', t) || ' with n = ' || n || ' was printed with p = ' || printf('%.1e', p_printed)
       || '; Student''s t with ' || (n - 1) || ' degrees of freedom gives ' || printf('%.1e', p_t) as fact,
       place, 'printed ' || case when p_printed > 0 then printf('%.0f', p_t / p_printed) || ' times too small'
                                 else 'as exactly 0' end as inference,
       case when p_printed > 0 then p_t / p_printed end as value
from tests
where abs(p_printed - p_normal) <= 1e-3 * p_normal + 1e-15 and p_t > 2 * p_printed
order by place, test
