"""Group-relative policy optimisation: what a learner is told, and what it trains on.

Axis suffix: T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from storage.artifacts.fingerprint import Ruled
from tasks.domain.grpo import rewards
from tasks.domain.grpo.advantages.group import Candidate
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_checks import check_learner
from tasks.domain.ranges import Seed, Within, refuse_impossible
from tasks.domain.scaffolds import TagRule

if TYPE_CHECKING:
    from tasks.domain.policies import ServedAdapter

#: What a study's own training is called among the objectives that it is compared with.
BASELINE = "as the study has it"
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")

PromptOrder = Literal["round_robin_by_source", "proportional", "balanced_by_subject"]
LrSchedule = Literal["constant", "linear", "cosine"]
AtLeastOne = Annotated[int, Within(1)]
#: What is sampled, kept or repeated so often: more is a slip, and a stage without an end.
MOST = 100_000
Size = Annotated[int, Within(1, MOST)]
#: Beyond it float32 overflows somewhere in a step.
LARGEST = 1e6
NotNegative = Annotated[float, Within(0, LARGEST)]
Positive = Annotated[float, Within(0, LARGEST, without="least")]
Share = Annotated[float, Within(0, 1)]
Decay = Annotated[float, Within(0, 1, without="most")]


#: Those of LearnerConfig when defaults were spelt out in names (tasks/former_names.py).
FORMER_FIELDS = (
    "steps groups_per_step group_size learning_rate lora_rank lora_alpha target_modules loss advantage "
    "tag_weight tag_rule betas eps weight_decay grad_clip eval_every seed truncated max_extra_groups "
    "prompt_order clip_low clip_high tis_cap max_tokens minibatches epochs kl_weight lr_schedule "
    "warmup_steps"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(Ruled):
    """All that changes the result of training, and nothing else. Defaults are the original recipe's.

    expert_rank: of each expert of a mixture, below `lora_rank`; null: as that. A token passes several experts, so that
        `lora_rank` over their number is a dense layer's trained parameters a token. Alpha is that of the others, so the
        scale is alpha / expert_rank (docs/training.md).
    tag_rule: what the tag reward is paid for, see tasks.domain.scaffolds; `published` replays the original study.
    advantage: an objective of tasks.domain.grpo.advantages; advantage_k: the attempts that `pass_at_k` and `pkpo` are
        about.
    truncated: `keep` trains on rollouts that hit `max_tokens`; `mask` drops their tokens from the loss, not their
        rewards from the group's mean.
    max_extra_groups: dynamic resampling; how many further prompts one step may sample to replace dead groups.
    clip_low, clip_high: ratio range 1-low … 1+high of `ppo`, `grpo`, `dapo`, `dr_grpo`, `gspo`; high alone bounds
        `cispo`.
    tis_cap: largest importance weight of `tis`.
    max_tokens: longest completion, the constant that `dr_grpo` divides by.
    minibatches: optimiser updates that a step's groups are dealt out to; epochs: how often each group is used. From
        the second update on the policy is no longer the one that sampled, and the ratio says so.
    kl_weight: of k3 towards where the training started, on every token of a step that has a live group.
    staleness: 1 trains each step on rollouts of the policy before the last one, sampled while the last step trains; the
        ratio to the policy that sampled is the loss's business.
    lr_schedule: after `warmup_steps` steps of linear rise, constant or falling to zero behind the last step.
    overlong_cache: DAPO's soft punishment of the last so many tokens below `max_tokens`; 0: none.
    bonus, bonus_gate, bonus_baseline: of exploration (advantages/exploration.py); gate `none` is the paper's.
    entropy_weight: of each trained token's entropy, which the loss rewards. entropy_target: the weight follows it by
        `entropy_delta` a step (objective_state.py).
    cov_share, cov_low, cov_high, cov_kl: of `clip_cov` and `kl_cov` (covariance.py).
    token_budget: sampled tokens after which training ends though not all steps are done; its last adapter is that of
        step `steps` all the same.
    tau_positive, tau_negative: temperatures of `sapo`, of tokens of positive and other advantage.
    candidates: answers in one completion, of `vpo` and `multi_rlvr`.
    """

    steps: Annotated[int, Within(1, 10 * MOST)]
    groups_per_step: Size
    group_size: Annotated[int, Within(2, MOST)]  # an advantage is relative to the others
    learning_rate: Share
    lora_rank: Annotated[int, Within(1, 16_384)]
    lora_alpha: Size
    expert_rank: AtLeastOne | None = None
    target_modules: tuple[str, ...] = ALL_LINEAR
    loss: str = "importance_sampling"
    advantage: str = "centred"
    tag_weight: NotNegative = 0.2
    tag_rule: TagRule = "pairs"
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    eps: Annotated[float, Within(1e-30, 1)] = 1e-8  # LoRA's first gradient is 0, which is divided by it
    weight_decay: Share = 0.0
    grad_clip: Positive | None = None
    eval_every: AtLeastOne = 10
    seed: Seed = 0
    truncated: Literal["keep", "mask"] = "keep"
    max_extra_groups: Annotated[int, Within(0, MOST)] = 0
    prompt_order: PromptOrder = "round_robin_by_source"
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    tis_cap: Positive = 2.0
    max_tokens: AtLeastOne | None = None
    minibatches: Size = 1
    epochs: Annotated[int, Within(1, 1000)] = 1
    kl_weight: NotNegative = 0.0
    lr_schedule: LrSchedule = "constant"
    warmup_steps: Annotated[int, Within(0)] = 0
    staleness: Annotated[int, Within(0, 1)] = 0
    advantage_k: AtLeastOne = 4
    overlong_cache: Annotated[int, Within(0)] = 0
    bonus: NotNegative = 0.2
    bonus_gate: Literal["right", "none"] = "right"
    bonus_baseline: Share = 0.5
    entropy_weight: NotNegative = 0.0
    entropy_target: Positive | None = None
    entropy_delta: Positive = 0.005
    cov_share: Annotated[float, Within(0, 1, without="least")] = 2e-4
    cov_low: NotNegative = 1.0
    cov_high: Positive = 5.0
    cov_kl: NotNegative = 1.0
    tau_positive: Positive = 1.0
    tau_negative: Positive = 1.05
    token_budget: AtLeastOne | None = None
    candidates: Annotated[int, Within(2)] = 3

    def versions(self) -> Mapping[str, int | str]:
        from tasks.domain.grpo.losses import LOSSES  # which take a config

        chosen: dict[str, int | str] = {self.advantage: ADVANTAGES[self.advantage].version}
        chosen |= {self.loss: LOSSES[self.loss].version} if self.loss in LOSSES else {}
        parts = rewards.versions(self.tag_weight, self.overlong_cache)
        return {name: version for name, version in chosen.items() if version != 1} | {**parts}

    @property
    def updates(self) -> int:
        """Of a step whose groups all have a gradient."""
        return self.minibatches * self.epochs

    def __post_init__(self) -> None:
        refuse_impossible(self, "learner")
        check_learner(self)


@dataclass(frozen=True, slots=True)
class PromptProblem:
    """What the order of prompts looks at."""

    problem_id: str
    source: str
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step samples: one group per problem, under the adapter of `policy_step`, `staleness` before the last.

    critic: the adapter of that step beside it, where the training has two.
    score: the learner's log-probs under these weights (tasks/engines/sampling/same_policy.py), of the critic's or not.
    step: from 1; steps + 1 stands for the evaluation after the last step, which has no problems.
    evaluate: sample held-out in the same call.
    """

    step: int
    problem_ids: tuple[str, ...]
    group_size: int
    policy_step: int
    adapter: ServedAdapter | None
    evaluate: bool
    critic: ServedAdapter | None = None
    score: Callable[..., np.ndarray] | None = None


@dataclass(frozen=True, slots=True)
class TrainRollout:
    """One sampled and graded rollout. logprobs_T: float32 behaviour log-probs of token_ids.

    answer: the key of its answer's class, the same in every step; null without one. trace_class: its strategy among its
    group's. candidates: the answers that it gives, where it was asked for several; it is correct if one of them is.
    other_tokens: of the turns before and after it. critique: of this draft, where the critic is trained too; null where
    it outgrew the context. of_right_draft: of a critique; null of anything else.
    """

    problem_id: str
    source: str
    rollout: int
    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs_T: np.ndarray
    correct: bool
    tag_valid: bool
    truncated: bool
    answer: str | None = None
    trace_class: int | None = None
    candidates: tuple[Candidate, ...] = ()
    other_tokens: int = 0
    critique: TrainRollout | None = None
    of_right_draft: bool | None = None


def evaluated_steps(steps: int, eval_every: int) -> list[int]:
    """Step 0, every `eval_every`, and the last one: the result is never the best of several checkpoints.

    >>> evaluated_steps(25, 10)
    [0, 10, 20, 25]
    """
    return sorted({*range(0, steps, eval_every), steps})
