-- needs: diversity
-- Tokens per correct answer, from mean lengths and counts per problem.
select sum(num_tokens * n) / nullif(sum(num_correct), 0) as value from diversity where arm = $arm and ref in (select ref from imports where path = $file)
