-- How much of the traces the encoder saw.
select 'encoder_coverage' as code,
       'the encoder saw ' || case basis when 'lengths' then 'about ' else '' end || printf('%.1f', 100 * coverage)
       || ' % of the traces of ' || arm || ' on ' || problems || ' (window ' || "window" || ')' as fact,
       place, 'distances are of what fits into the encoder; an arm with longer traces is judged by its opening alone'
           as inference,
       coverage as value
from coverage where coverage < 0.9
order by coverage, fact
