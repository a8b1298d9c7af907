-- Remarks of a run log on its grader, counts in prose that differ from the rows, imported adapters, answers of several
-- kinds, and answers on which a grader raised an error.
select code, said as fact, place,
       case code when 'grader_artefact' then 'a problem counted as solved may not have been'
                 when 'adapter_made_elsewhere' then 'what it was taught is not known: held-out problems may be among it, and the arms did not start alike'
                 when 'answer_kinds' then 'each is right by another rule: a difference between these arms may be the rule''s'
                 when 'grader_raised' then 'they count as not right: accuracy is what that grader can read'
                 when 'gate' then 'what the arms are compared by may be form, or what came before, and not what their scaffolds do'
                 when 'no_update' then 'its adapter is the start''s: a difference from it is chance'
                 when 'reward_of_form' then 'arms are paid for different form: a difference of gains may be the reward''s'
                 when 'log_contradicts' then 'one of the two is wrong, and so is what was concluded from it'
                 else 'a figure taken from the prose may rest on more rows than there are' end as inference, null::double as value
from notes order by all
