"""Which of a learner's settings cannot stand together, each refused in one sentence before anything is sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import UserError, did_you_mean
from tasks.domain.grpo.advantages.registry import ADVANTAGES

if TYPE_CHECKING:
    from tasks.domain.grpo.types import LearnerConfig

#: Of each expert of a mixture; of a dense model its MLP's.
EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def check_learner(config: LearnerConfig) -> None:
    """Errors: UserError for the first of them."""
    if config.minibatches > config.groups_per_step:
        raise UserError(
            f"learner: {config.minibatches} minibatches of {config.groups_per_step} groups; one group each is the least"
        )
    if config.warmup_steps > config.steps:
        raise UserError(
            f"learner: warmup_steps is {config.warmup_steps} of {config.steps} steps; the full rate is never reached"
        )
    _check_objective(config)
    if not config.target_modules:
        raise UserError("learner: target_modules is empty; name at least one linear layer, such as q_proj")
    if config.expert_rank is not None:
        _check_expert_rank(config, config.expert_rank)


def _check_expert_rank(config: LearnerConfig, rank: int) -> None:
    if rank >= config.lora_rank:
        raise UserError(f"learner: expert_rank is {rank}, which is not below lora_rank, {config.lora_rank}")
    experts = {*config.target_modules} & {*EXPERT_PROJECTIONS}
    if not experts or experts == {*config.target_modules}:
        raise UserError(
            f"learner: expert_rank is {rank} and target_modules {', '.join(config.target_modules)}: it is for experts"
            f" ({', '.join(EXPERT_PROJECTIONS)}) beside other layers; leave it out and set lora_rank"
        )


def _check_objective(config: LearnerConfig) -> None:
    if config.advantage not in ADVANTAGES:
        known = f"choose from {', '.join(ADVANTAGES)}, or install the package that brings it"
        hint = did_you_mean(config.advantage, ADVANTAGES)
        raise UserError(f"learner: unknown advantage {config.advantage!r}{hint}; {known}")
    objective = ADVANTAGES[config.advantage]
    if "advantage_k" in objective.reads and config.advantage_k > config.group_size:
        raise UserError(
            f"learner: advantage {config.advantage} is about {config.advantage_k} attempts (advantage_k) of"
            f" {config.group_size} (group_size); lower the one or raise the other"
        )
    if "advantage_k" in objective.reads and config.advantage_k + objective.beyond_k > config.group_size:
        raise UserError(
            f"learner: advantage {config.advantage} has nothing to learn from {config.advantage_k} attempts"
            f" (advantage_k) of {config.group_size} (group_size), which are one group; lower the one or raise the"
            " other"
        )
    if "advantage_k" in objective.reads and config.advantage_k < objective.least_k:
        raise UserError(
            f"learner: advantage {config.advantage} needs at least {objective.least_k} attempts (advantage_k), not"
            f" {config.advantage_k}: its baseline is of one fewer"
        )
    if config.group_size < (least := objective.least_group):
        raise UserError(f"learner: advantage {config.advantage} needs a group_size of {least}, not {config.group_size}")
    if "bonus" in objective.reads and not config.bonus:
        raise UserError(f"learner: advantage {config.advantage} with a bonus of 0 is standardised; name that")
    if config.overlong_cache and config.overlong_cache >= (config.max_tokens or 0):
        raise UserError(
            f"learner: overlong_cache {config.overlong_cache} counts back from max_tokens, which is"
            f" {config.max_tokens}; set max_tokens to the longest completion, above it"
        )
    if config.token_budget and config.staleness:
        raise UserError("learner: token_budget ends a training at its last step; staleness has sampled the next one")
    if config.token_budget and config.lr_schedule != "constant":
        raise UserError(
            f"learner: token_budget ends a training where it is spent, and lr_schedule={config.lr_schedule} falls by"
            " steps: where it would stand then nobody has chosen; use constant"
        )
    if config.cov_low >= config.cov_high:
        raise UserError(f"learner: cov_low {config.cov_low:g} is not below cov_high {config.cov_high:g}")
