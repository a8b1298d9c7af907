"""The behaviour policy: how rollouts must be drawn for the learner's log-probs to be those of what sampled them."""

from __future__ import annotations

from storage.errors import UserError
from tasks.domain.grpo.types import LearnerConfig
from tasks.domain.policies import Sampling

#: vLLM draws at this one where a lower one is asked for.
LEAST_TEMPERATURE = 0.01


def check_sampling(rollouts: Sampling, name: str = "rollouts") -> None:
    """name: of the setting. Any temperature from LEAST_TEMPERATURE on: the learner divides its logits by it.

    Errors: UserError for top_p, because the sampler's nucleus is cut at the policy that sampled: its log-probs are of
    that cut distribution, which is not recorded, and a token that the learner's own nucleus leaves out has no ratio;
    for a lower temperature, where nearly all rollouts of a group are one; for keys and values that are rounded.

    >>> check_sampling(Sampling(max_tokens=8, temperature=0.7))
    """
    if rollouts.top_p != 1:
        raise UserError(
            f"{name}.top_p is {rollouts.top_p:g}: training needs 1, because log-probs of a cut distribution are not"
            f" those of the policy; set {name}.top_p=1 (evaluation.sampling.top_p is free)"
        )
    check_kept_whole(rollouts, name)
    if rollouts.temperature < LEAST_TEMPERATURE:
        raise UserError(
            f"{name}.temperature is {rollouts.temperature:g}: training needs at least {LEAST_TEMPERATURE:g}, because"
            f" greedy rollouts of a problem are all the same; set {name}.temperature=1"
        )


def check_kept_whole(sampling: Sampling, name: str) -> None:
    """name: of a setting whose rollouts the engine of a training samples.

    Errors: UserError for keys and values that are rounded, because the learner computes the policy with those that are
    not.
    """
    if sampling.kv_cache != "full":
        raise UserError(
            f"{name}.kv_cache is {sampling.kv_cache}: what a training samples needs full, because the learner computes"
            f" the policy with keys and values that are not rounded; set {name}.kv_cache=full"
            " (screening.sampling.kv_cache and final.sampling.kv_cache are free)"
        )


def check_overlong(config: LearnerConfig, rollouts: Sampling) -> None:
    """Errors: UserError for a punishment of long completions that none is long enough for."""
    begins = (config.max_tokens or 0) - config.overlong_cache
    if config.overlong_cache and begins >= rollouts.max_tokens:
        raise UserError(
            f"training.overlong_cache begins after {begins} tokens, and rollouts end at {rollouts.max_tokens}"
            f" (rollouts.max_tokens); set training.max_tokens={rollouts.max_tokens}"
        )
