"""The configuration of the learner, and which of its settings and of the sampling settings are incompatible."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from storage.artifacts.fingerprint import Ruled
from storage.errors import UserError, did_you_mean
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.losses import LOSSES
from tasks.domain.grpo.rewards import RewardTerm, by_name, from_packages, judge_of, reward_mistakes, reward_versions
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

#: Name of the study's own training among the compared objectives.
BASELINE = "as the study has it"
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")

PromptOrder = Literal["round_robin_by_source", "proportional", "balanced_by_subject"]
LrSchedule = Literal["constant", "linear", "cosine"]
#: Largest weight in a setting. Beyond it float32 overflows in a training step.
LARGEST = 1e6
NotNegative = Annotated[Real, Field(ge=0, le=LARGEST)]
Positive = Annotated[Real, Field(gt=0, le=LARGEST)]
Decay = Annotated[Real, Field(ge=0, lt=1)]


def check_layers(names: Sequence[str]) -> None:
    """Raise UserError for a layer that no supported model has. The layers of an imported adapter are not checked."""
    for name in names:
        if name not in ALL_LINEAR:
            hint = did_you_mean(name, ALL_LINEAR)
            raise UserError(f"no linear layer '{name}'{hint} (known: {', '.join(ALL_LINEAR)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(Ruled, Checked):
    """All settings that change the result of a training, and no others. The defaults are those of the published study's
    recipe. Steps, group sizes and the learning rate have no default; profiles set them (flows/study/builtin/*.toml)."""

    steps: Annotated[Whole, Field(ge=1, le=10 * MOST)]
    """Training steps."""
    groups_per_step: Size
    """Problems per step."""
    group_size: Annotated[Whole, Field(ge=2, le=MOST)]  # an advantage is relative to the others
    """Rollouts per problem (G)."""
    learning_rate: Share  # no default; the studies in flows/study/builtin set it
    """Adam's learning rate."""
    lora_rank: Annotated[Whole, Field(ge=1, le=16_384)]
    """Rank of the LoRA adapter."""
    lora_alpha: Size
    """The scale of the adapter is `lora_alpha / lora_rank`."""
    expert_rank: Annotated[AtLeastOne | None, OrNone] = None
    """Rank for each expert of a mixture, below `lora_rank`; their scale is `lora_alpha / expert_rank`."""
    target_modules: Annotated[tuple[str, ...], Distinct, Field(min_length=1)] = ALL_LINEAR
    """Linear layers that get an adapter."""
    loss: str = "importance_sampling"
    """Loss: see the table of losses."""
    advantage: str = "centred"
    """Objective: see the table of objectives."""
    tag_weight: NotNegative = 0.2
    """Weight of valid tags in the reward."""
    rewards: Annotated[tuple[RewardTerm, ...], BeforeValidator(by_name)] = ()
    """Parts of the reward and their weights. Empty: `correct`, `tag` with `tag_weight`, `overlong` if there is an
    `overlong_cache`."""
    tag_rule: TagRule = "pairs"
    """Rule of valid tags. `published` is the rule of the published study, which accepts an empty trace."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Adam's decay rates."""
    eps: Annotated[Real, Field(ge=1e-30, le=1)] = 1e-8  # LoRA's first gradient is 0, which is divided by it
    """Adam's epsilon. LoRA's first gradient is 0 and is divided by it."""
    weight_decay: Share = 0.0
    """Adam's weight decay."""
    grad_clip: Annotated[Positive | None, OrNone] = None
    """Largest norm of the gradient."""
    eval_every: AtLeastOne = 10
    """Training steps between two evaluations."""
    seed: Seed = 0
    """Seed of the adapter's start, of the order of problems and of the rollouts."""
    truncated: Literal["keep", "mask"] = "keep"
    """`keep` trains on rollouts that hit `max_tokens`; `mask` leaves their tokens out of the loss. Their rewards count
    in the group's mean either way."""
    max_extra_groups: Annotated[Whole, Field(ge=0, le=MOST)] = 0
    """Further problems that a step may sample to replace groups whose rewards are all equal."""
    prompt_order: PromptOrder = "round_robin_by_source"
    """Order of the training problems."""
    clip_low: Share = 0.2
    """Ratios are clipped below 1 − `clip_low`, where the loss clips."""
    clip_high: NotNegative = 0.2
    """Ratios are clipped above 1 + `clip_high`, where the loss clips; the only bound of `cispo`."""
    tis_cap: Positive = 2.0
    """Largest importance weight of `tis`."""
    max_tokens: Annotated[AtLeastOne | None, OrNone] = None
    """Longest completion. `dr_grpo` divides by it, and `overlong_cache` counts back from it."""
    minibatches: Size = 1
    """Updates per step and epoch. The step's groups are divided among them."""
    epochs: Annotated[Whole, Field(ge=1, le=1000)] = 1
    """How often a step trains on each group."""
    kl_weight: NotNegative = 0.0
    """Weight of the KL term (k3) towards the start of the training."""
    lr_schedule: LrSchedule = "constant"
    """Learning rate after the warm-up: constant, or falling to zero after the last step."""
    warmup_steps: Count = 0
    """Steps in which the learning rate rises linearly."""
    staleness: Annotated[Whole, Field(ge=0, le=1)] = 0
    """With 1, the rollouts of a step are sampled while the previous step trains. They come from the policy before its
    update."""
    advantage_k: AtLeastOne = 4
    """Attempts k of `pass_at_k` and `pkpo`."""
    overlong_cache: Count = 0
    """Tokens before `max_tokens` in which DAPO's length penalty grows. 0: no penalty."""
    bonus: NotNegative = 0.2
    """Weight of the exploration bonus, for objectives that have one."""
    bonus_gate: Literal["right", "none"] = "right"
    """Rollouts that get the bonus: correct ones (`right`) or all (`none`, as in the paper)."""
    bonus_baseline: Share = 0.5
    """Baseline of the bonus of `ucb_constant`."""
    entropy_weight: NotNegative = 0.0
    """Weight of each trained token's entropy, which the loss rewards."""
    entropy_target: Annotated[Positive | None, OrNone] = None
    """Target of the entropy. `entropy_weight` rises while the entropy is lower, and falls while it is higher."""
    entropy_delta: Positive = 0.005
    """Change of `entropy_weight` per step, with a target."""
    cov_share: ShareAboveZero = 2e-4
    """Share of the tokens that `clip_cov` leaves out, or to which `kl_cov` adds a KL term."""
    cov_low: NotNegative = 1.0
    """Lowest covariance of the tokens that `clip_cov` leaves out."""
    cov_high: Positive = 5.0
    """Highest covariance of the tokens that `clip_cov` leaves out."""
    cov_kl: NotNegative = 1.0
    """Weight of the KL term of `kl_cov`."""
    tau_positive: Positive = 1.0
    """Temperature of `sapo` for tokens of positive advantage."""
    tau_negative: Positive = 1.05
    """Temperature of `sapo` for other tokens."""
    token_budget: Annotated[AtLeastOne | None, OrNone] = None
    """Sampled tokens after which the training ends. The step that reaches this number is finished."""
    candidates: AtLeastTwo = 3
    """Answers in one completion, for `vpo` and `multi_rlvr`."""

    def versions(self) -> Mapping[str, int | str]:
        chosen: dict[str, int | str] = {self.advantage: ADVANTAGES[self.advantage].version}
        chosen |= {self.loss: LOSSES[self.loss].version} if self.loss in LOSSES else {}
        parts = reward_versions(self)
        return {name: version for name, version in chosen.items() if version != 1} | {**parts}

    @property
    def updates(self) -> int:
        """Return the number of updates in a step whose groups all have a gradient."""
        return self.minibatches * self.epochs

    def check(self) -> None:
        check_learner(self)


#: Projections of each expert of a mixture, or of a dense model's MLP.
EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def check_learner(c: LearnerConfig) -> None:
    """Raise UserError if two settings are incompatible."""
    if c.advantage not in ADVANTAGES:
        hint = did_you_mean(c.advantage, ADVANTAGES)
        known = f"choose from {', '.join(ADVANTAGES)}, or install the package that brings it"
        raise UserError(f"learner: unknown advantage {c.advantage!r}{hint}; {known}")
    objective, k = ADVANTAGES[c.advantage], c.advantage_k
    weight_of_correct = sum(term.weight for term in c.rewards if term.name == "correct")
    of_k, name = "advantage_k" in objective.reads, f"advantage {c.advantage}"
    of_g = f"of {c.group_size} (group_size)"
    experts = {*c.target_modules} & {*EXPERT_PROJECTIONS}
    mistakes = [
        (
            c.minibatches > c.groups_per_step,
            f"minibatches is {c.minibatches}, above groups_per_step ({c.groups_per_step}); lower it",
        ),
        (
            of_k and k > c.group_size,
            f"{name} needs {k} attempts (advantage_k) {of_g}; lower advantage_k or raise group_size",
        ),
        (
            of_k and k + objective.beyond_k > c.group_size,
            f"{name} compares choices of {k} attempts (advantage_k) {of_g}, which is a single one; lower advantage_k",
        ),
        (of_k and k < objective.least_k, f"{name} needs at least {objective.least_k} attempts (advantage_k), not {k}"),
        (
            c.group_size < objective.least_group,
            f"{name} needs a group_size of {objective.least_group}, not {c.group_size}",
        ),
        *((True, words) for words in reward_mistakes(c)),
        (
            c.rewards and objective.of_parts and weight_of_correct != 1,
            f"advantage {c.advantage} weighs correctness itself; give the reward 'correct' a weight of 1",
        ),
        (
            (from_packages(c) or judge_of(c)) and {"candidates", "refinements"} & {*objective.needs},
            f"advantage {c.advantage} trains on several turns or answers, which a judge and rewards of other packages"
            " cannot score",
        ),
        (
            c.overlong_cache and c.overlong_cache >= (c.max_tokens or 0),
            f"overlong_cache {c.overlong_cache} counts back from max_tokens, which is {c.max_tokens}; set max_tokens to"
            " the longest completion, above it",
        ),
        (c.token_budget and c.staleness, "token_budget cannot be combined with staleness, which samples one step more"),
        (
            c.token_budget and c.lr_schedule != "constant",
            f"token_budget ends a training early, and lr_schedule={c.lr_schedule} falls by steps; use constant",
        ),
        (
            (c.expert_rank or 0) >= c.lora_rank,
            f"expert_rank is {c.expert_rank}; it must be below lora_rank, which is {c.lora_rank}",
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


#: Lowest temperature of vLLM, which replaces a lower one by this.
LEAST_TEMPERATURE = 0.01


def check_sampling(rollouts: Sampling, name: str = "rollouts") -> None:
    """Check the sampling of a training's rollouts. Raise UserError for three settings: top_p below 1, because log-probs
    of a truncated distribution are not the policy's; a temperature below LEAST_TEMPERATURE, because nearly all rollouts
    of a group would be identical; a quantised KV cache. name: the setting's name."""
    if rollouts.top_p != 1:
        raise UserError(
            f"{name}.top_p is {rollouts.top_p:g}: training needs 1, because log-probs of a truncated distribution are"
            f" not the policy's; set {name}.top_p=1 (evaluation.sampling.top_p may have another value)"
        )
    check_kept_whole(rollouts, name)
    if rollouts.temperature < LEAST_TEMPERATURE:
        raise UserError(
            f"{name}.temperature is {rollouts.temperature:g}: training needs at least {LEAST_TEMPERATURE:g}, because"
            f" greedy rollouts of a problem are identical; set {name}.temperature=1"
        )


def check_kept_whole(sampling: Sampling, name: str) -> None:
    """Raise UserError for a quantised KV cache, because the cache of the learner is not quantised."""
    if sampling.kv_cache != "full":
        raise UserError(
            f"{name}.kv_cache is {sampling.kv_cache}: training needs full, because the learner does not quantise keys"
            f" and values; set {name}.kv_cache=full (screening and final may use another value)"
        )


def check_overlong(config: LearnerConfig, rollouts: Sampling) -> None:
    """Raise UserError if the length penalty begins beyond the longest completion."""
    begins = (config.max_tokens or 0) - config.overlong_cache
    if config.overlong_cache and begins >= rollouts.max_tokens:
        raise UserError(
            f"the length penalty (training.overlong_cache) begins after {begins} tokens, but rollouts end at"
            f" {rollouts.max_tokens} (rollouts.max_tokens); set training.max_tokens={rollouts.max_tokens}"
        )
