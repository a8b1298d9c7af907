-- One problem as the pool has it.
select problem_id, source, source_id, gold, answer_type, left(problem, 20000) as problem from pool where problem_id = $problem
