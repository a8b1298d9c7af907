-- Verdicts of several grader versions among compared runs.
select 'grader_version' as code, 'verdicts of graders ' || string_agg(distinct grader, ', ' order by grader) || ' are compared'
           as fact,
       string_agg(distinct place, ', ' order by place) as place, 'an effect may be the grader''s: regrade all of them' as inference,
       count(distinct grader)::double as value
from designs where grader is not null having count(distinct grader) > 1
