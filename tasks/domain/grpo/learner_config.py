"""The learner's configuration, and which of its settings cannot stand together or with how rollouts are sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from storage.artifacts.fingerprint import Ruled
from storage.errors import UserError, did_you_mean
from tasks.domain.grpo import rewards
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.losses import LOSSES
from tasks.domain.policies import Sampling
from tasks.domain.ranges import (
    MOST,
    AtLeastOne,
    AtLeastTwo,
    Checked,
    Count,
    Distinct,
    OrNone,
    Real,
    Seed,
    Share,
    ShareAboveZero,
    Size,
    Whole,
)
from tasks.domain.scaffolds import TagRule

#: What a study's own training is called among the objectives that it is compared with.
BASELINE = "as the study has it"
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")

PromptOrder = Literal["round_robin_by_source", "proportional", "balanced_by_subject"]
LrSchedule = Literal["constant", "linear", "cosine"]
#: Beyond it float32 overflows somewhere in a step.
LARGEST = 1e6
NotNegative = Annotated[Real, Field(ge=0, le=LARGEST)]
Positive = Annotated[Real, Field(gt=0, le=LARGEST)]
Decay = Annotated[Real, Field(ge=0, lt=1)]


def check_layers(names: Sequence[str]) -> None:
    """For a study's own training: an adapter made elsewhere may be of other layers. Errors: UserError for a layer that
    no model that is trained here has."""
    for name in names:
        if name not in ALL_LINEAR:
            hint = did_you_mean(name, ALL_LINEAR)
            raise UserError(f"no linear layer '{name}'{hint} (known: {', '.join(ALL_LINEAR)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(Ruled, Checked):
    """All that changes the result of training, and nothing else. Defaults are the original recipe's.

    expert_rank: of each expert of a mixture, below `lora_rank`; None: the same. Alpha is that of the others, so the
        scale is alpha / expert_rank (docs/training.md).
    tag_rule: what the tag reward is paid for, see tasks.domain.scaffolds; `published` replays the original study.
    advantage: an objective of tasks.domain.grpo.advantages; advantage_k: the attempts of `pass_at_k` and `pkpo`.
    truncated: `keep` trains on rollouts that hit `max_tokens`; `mask` drops their tokens from the loss, not their
        rewards from the group's mean.
    max_extra_groups: how many further prompts one step may sample to replace dead groups.
    clip_low, clip_high: the ratio's range 1-low … 1+high where a loss clips; high alone bounds `cispo`. tis_cap: the
        largest importance weight of `tis`. max_tokens: longest completion, which `dr_grpo` divides by.
    minibatches: optimiser updates that a step's groups are dealt out to; epochs: how often each group is used.
    kl_weight: of k3 towards where the training started, on every token of a step that has a live group.
    staleness: 1 trains each step on rollouts of the policy before the last one, sampled while the last step trains.
    lr_schedule: after `warmup_steps` steps of linear rise, constant or falling to zero behind the last step.
    overlong_cache: DAPO's soft punishment of the last so many tokens below `max_tokens`; 0: none.
    bonus, bonus_gate, bonus_baseline: of exploration (advantages/exploration.py); gate `none` is the paper's.
    entropy_weight: of each trained token's entropy, which the loss rewards; it follows `entropy_target` by
        `entropy_delta` a step (credit.py). cov_share, cov_low, cov_high, cov_kl: of `clip_cov` and `kl_cov`.
    token_budget: sampled tokens after which training ends; its last adapter is that of step `steps` all the same.
    tau_positive, tau_negative: temperatures of `sapo`, of tokens of positive and other advantage.
    candidates: answers in one completion, of `vpo` and `multi_rlvr`.
    """

    steps: Annotated[Whole, Field(ge=1, le=10 * MOST)]
    groups_per_step: Size
    group_size: Annotated[Whole, Field(ge=2, le=MOST)]  # an advantage is relative to the others
    learning_rate: Share
    lora_rank: Annotated[Whole, Field(ge=1, le=16_384)]
    lora_alpha: Size
    expert_rank: Annotated[AtLeastOne | None, OrNone] = None
    target_modules: Annotated[tuple[str, ...], Distinct, Field(min_length=1)] = ALL_LINEAR
    loss: str = "importance_sampling"
    advantage: str = "centred"
    tag_weight: NotNegative = 0.2
    tag_rule: TagRule = "pairs"
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    eps: Annotated[Real, Field(ge=1e-30, le=1)] = 1e-8  # LoRA's first gradient is 0, which is divided by it
    weight_decay: Share = 0.0
    grad_clip: Annotated[Positive | None, OrNone] = None
    eval_every: AtLeastOne = 10
    seed: Seed = 0
    truncated: Literal["keep", "mask"] = "keep"
    max_extra_groups: Annotated[Whole, Field(ge=0, le=MOST)] = 0
    prompt_order: PromptOrder = "round_robin_by_source"
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    tis_cap: Positive = 2.0
    max_tokens: Annotated[AtLeastOne | None, OrNone] = None
    minibatches: Size = 1
    epochs: Annotated[Whole, Field(ge=1, le=1000)] = 1
    kl_weight: NotNegative = 0.0
    lr_schedule: LrSchedule = "constant"
    warmup_steps: Count = 0
    staleness: Annotated[Whole, Field(ge=0, le=1)] = 0
    advantage_k: AtLeastOne = 4
    overlong_cache: Count = 0
    bonus: NotNegative = 0.2
    bonus_gate: Literal["right", "none"] = "right"
    bonus_baseline: Share = 0.5
    entropy_weight: NotNegative = 0.0
    entropy_target: Annotated[Positive | None, OrNone] = None
    entropy_delta: Positive = 0.005
    cov_share: ShareAboveZero = 2e-4
    cov_low: NotNegative = 1.0
    cov_high: Positive = 5.0
    cov_kl: NotNegative = 1.0
    tau_positive: Positive = 1.0
    tau_negative: Positive = 1.05
    token_budget: Annotated[AtLeastOne | None, OrNone] = None
    candidates: AtLeastTwo = 3

    def versions(self) -> Mapping[str, int | str]:
        chosen: dict[str, int | str] = {self.advantage: ADVANTAGES[self.advantage].version}
        chosen |= {self.loss: LOSSES[self.loss].version} if self.loss in LOSSES else {}
        parts = rewards.versions(self.tag_weight, self.overlong_cache)
        return {name: version for name, version in chosen.items() if version != 1} | {**parts}

    @property
    def updates(self) -> int:
        """Of a step whose groups all have a gradient."""
        return self.minibatches * self.epochs

    def check(self) -> None:
        check_learner(self)


#: Of each expert of a mixture; of a dense model its MLP's.
EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def check_learner(c: LearnerConfig) -> None:
    """Errors: UserError for the first two settings that cannot stand together."""
    if c.advantage not in ADVANTAGES:
        hint = did_you_mean(c.advantage, ADVANTAGES)
        known = f"choose from {', '.join(ADVANTAGES)}, or install the package that brings it"
        raise UserError(f"learner: unknown advantage {c.advantage!r}{hint}; {known}")
    objective, k = ADVANTAGES[c.advantage], c.advantage_k
    of_k, name = "advantage_k" in objective.reads, f"advantage {c.advantage}"
    of_g = f"of {c.group_size} (group_size)"
    experts = {*c.target_modules} & {*EXPERT_PROJECTIONS}
    mistakes = [
        (c.minibatches > c.groups_per_step, f"{c.minibatches} minibatches of {c.groups_per_step} groups"),
        (
            c.warmup_steps > c.steps,
            f"warmup_steps is {c.warmup_steps} of {c.steps} steps: it never reaches the full rate",
        ),
        (
            of_k and k > c.group_size,
            f"{name} is about {k} attempts (advantage_k) {of_g}; lower the one or raise the other",
        ),
        (
            of_k and k + objective.beyond_k > c.group_size,
            f"{name} has nothing to learn from {k} attempts (advantage_k) {of_g}, which are one group",
        ),
        (of_k and k < objective.least_k, f"{name} needs at least {objective.least_k} attempts (advantage_k), not {k}"),
        (
            c.group_size < objective.least_group,
            f"{name} needs a group_size of {objective.least_group}, not {c.group_size}",
        ),
        ("bonus" in objective.reads and not c.bonus, f"{name} with a bonus of 0 is standardised; name that"),
        (
            c.overlong_cache and c.overlong_cache >= (c.max_tokens or 0),
            f"overlong_cache {c.overlong_cache} counts back from max_tokens, which is {c.max_tokens}; set max_tokens to"
            " the longest completion, above it",
        ),
        (c.token_budget and c.staleness, "token_budget ends at the last step, and staleness has sampled the next one"),
        (
            c.token_budget and c.lr_schedule != "constant",
            f"token_budget ends a training early, and lr_schedule={c.lr_schedule} falls by steps; use constant",
        ),
        (c.cov_low >= c.cov_high, f"cov_low {c.cov_low:g} is not below cov_high {c.cov_high:g}"),
        (
            (c.expert_rank or 0) >= c.lora_rank,
            f"expert_rank is {c.expert_rank}, which is not below lora_rank, {c.lora_rank}",
        ),
        (
            c.expert_rank and (not experts or experts == {*c.target_modules}),
            f"expert_rank is {c.expert_rank} and target_modules {', '.join(c.target_modules)}: it is for experts"
            f" ({', '.join(EXPERT_PROJECTIONS)}) beside other layers; leave it out and set lora_rank",
        ),
    ]
    for wrong, sentence in mistakes:
        if wrong:
            raise UserError(f"learner: {sentence}")


#: vLLM draws at this one where a lower one is asked for.
LEAST_TEMPERATURE = 0.01


def check_sampling(rollouts: Sampling, name: str = "rollouts") -> None:
    """Check how a training's rollouts are sampled. name: of the setting.

    Errors: UserError for top_p, because log-probs of a cut distribution are not those of the policy; for a lower
    temperature than LEAST_TEMPERATURE, where nearly all rollouts of a group are one; for a rounded KV cache.
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
    """Errors: UserError for a rounded KV cache of what a training's engine samples: the learner's is not rounded."""
    if sampling.kv_cache != "full":
        raise UserError(
            f"{name}.kv_cache is {sampling.kv_cache}: what a training samples needs full, because the learner's keys"
            f" and values are not rounded; set {name}.kv_cache=full (those of screening and final are free)"
        )


def check_overlong(config: LearnerConfig, rollouts: Sampling) -> None:
    """Errors: UserError for a punishment of long completions that none is long enough for."""
    begins = (config.max_tokens or 0) - config.overlong_cache
    if config.overlong_cache and begins >= rollouts.max_tokens:
        raise UserError(
            f"training.overlong_cache begins after {begins} tokens, and rollouts end at {rollouts.max_tokens}"
            f" (rollouts.max_tokens); set training.max_tokens={rollouts.max_tokens}"
        )
