-- A reference figure attributed to the wrong problem set; compared runs on different problems.
select 'reference' as code,
       figure || ': stated as ' || printf('%.3f', claimed) || ' on ' || "on" || ', where the files give '
       || printf('%.3f', value) || '; on ' || elsewhere || ' they give ' || printf('%.3f', value_elsewhere) as fact,
       place, 'the bar that results are held against belongs to other problems' as inference, claimed - value as value
from reference_figures where abs(claimed - value) > 0.05
union all
select distinct 'reference', a.arm || ' was evaluated on ' || a.problems || ' and ' || b.arm || ' on ' || b.problems,
       a.place || ', ' || b.place, 'unlike problems: no paired comparison is possible', null
from designs a join designs b using (family)
where a.run < b.run and a.role in ('evaluation', 'heldout') and a.problems <> b.problems
order by all
