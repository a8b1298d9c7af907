-- needs: diversity
-- Tokens per correct answer, from mean lengths and counts per problem.
select sum(num_tokens * n) / nullif(sum(num_correct), 0) as value from diversity join artifacts using (ref)
where stage = 'import_diversity' and arm = $arm and "window" = 'head2000chars' and (source like 'AIME%') = ($problems = 'aime')
