/*
section = "tokens"
place = 10
title = "Tokens per correct answer"
caption = """
All completion tokens over all correct answers. accuracy_answered: correct rollouts over rollouts with an answer."""
sources = ["tokens"]
*/
-- Total completion tokens over correct answers, per policy; truncation and the accuracy of answers beside it.
select t.arm, t.step, t.source, t.estimate as tokens_per_correct, t.low as tokens_per_correct_low,
    t.high as tokens_per_correct_high, t.mean as tokens_per_rollout, t.truncated, a.estimate as accuracy_answered,
    a.low as accuracy_answered_low, a.high as accuracy_answered_high, t.num_correct, t.num_tokens, t.n, t.holds_for,
    coalesce(t.reason, a.reason) as reason
from tokens t join arms using (arm)
left join tokens a on a.metric = 'accuracy_answered' and (a.arm, a.step, a.source) = (t.arm, t.step, t.source)
where t.metric = 'tokens_per_correct'
order by t.source <> 'all', t.source, place, t.step
