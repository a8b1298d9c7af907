-- What the run log itself says of its grader, and counts in prose that differ from the rows.
select code, said as fact, place,
       case code when 'grader_artefact' then 'a problem counted as solved may not have been'
                 when 'log_contradicts' then 'one of the two is wrong, and so is what was concluded from it'
                 else 'a figure taken from the prose may rest on more rows than there are' end as inference, null::double as value
from notes order by all
