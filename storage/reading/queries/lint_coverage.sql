-- How much of the traces the encoder saw.
select 'encoder_coverage' as code,
       'the encoder saw ' || case basis when 'bound' then 'at most ' else '' end || printf('%.1f', 100 * coverage)
       || ' % of the traces of ' || arm || ' on ' || problems || ' (window ' || "window" || ')' as what,
       place, 'distances are of what fits into the encoder; an arm with longer traces is judged by its opening alone'
           as matter,
       coverage as value
from coverage where coverage < 0.9
order by coverage, what
