"""The behaviour policy: how rollouts must be drawn for the learner's log-probs to be those of what sampled them."""

from __future__ import annotations

from storage.errors import UserError
from tasks.domain.policies import Sampling


def check_sampling(rollouts: Sampling) -> None:
    """Any temperature above zero: the learner divides its logits by it.

    Errors: UserError for top_p, because the sampler's nucleus is cut at the policy that sampled: its log-probs are of
    that cut distribution, which is not recorded, and a token that the learner's own nucleus leaves out has no ratio;
    for temperature 0, where all rollouts of a group are one.

    >>> check_sampling(Sampling(max_tokens=8, temperature=0.7))
    """
    if rollouts.top_p != 1:
        raise UserError(
            f"rollouts.top_p is {rollouts.top_p:g}: training needs 1, because log-probs of a cut distribution are not"
            " those of the policy; set rollouts.top_p=1 (evaluation.sampling.top_p is free)"
        )
    if rollouts.temperature <= 0:
        raise UserError(
            f"rollouts.temperature is {rollouts.temperature:g}: training needs more than 0, because greedy rollouts of"
            " a problem are all the same; set rollouts.temperature=1"
        )
