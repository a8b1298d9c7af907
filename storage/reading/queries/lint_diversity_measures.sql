-- A control that is more diverse than the treatment; a window that changes no figure.
select 'control' as code,
       c.arm || ', the same weights under a plain prompt, is more diverse (' || printf('%.3f', c.diversity) || ') than '
       || p.arm || ' (' || printf('%.3f', p.diversity) || ') on ' || p.problems || ', and less accurate ('
       || printf('%.2f', c.share_correct) || ' against ' || printf('%.2f', p.share_correct) || ')' as fact,
       c.place || ', ' || p.place as place,
       'diversity and error go together here: a difference between arms needs accuracy and length held equal' as inference,
       c.diversity - p.diversity as value
from diversity_measures c join diversity_measures p using (problems, "window")
where c.arm = 'no_panel' and p.arm = 'panel' and c.diversity > p.diversity
union all
select 'window', 'window ' || "window" || ' gives ' || arm || ' on ' || problems || ' the figures of window ' || same_as
       || ' (largest change ' || printf('%.0e', largest_change) || ')', place,
       'the encoder''s own limit binds in both: the second window is no robustness check', largest_change
from diversity_measures where same_as is not null and largest_change < 1e-6
order by all
