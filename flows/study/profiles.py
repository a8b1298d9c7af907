"""Every number of every study. Frozen data, no logic: a changed number here is a changed fingerprint there. `hardware`
says how a profile's stages may use their machine; it never reaches a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from flows.study.otherwise import Objective
from flows.study.search import Search
from tasks.domain.grpo.types import AtLeastOne, LearnerConfig
from tasks.domain.policies import Sampling
from tasks.domain.ranges import Ranged, Within
from tasks.engines.hardware import Hardware

Count = Annotated[int, Within(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan(Ranged):
    """One kind of sampling in a study: how, and how many rollouts a problem."""

    sampling: Sampling
    group_size: AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening(SamplingPlan):
    """adaptive: leave a problem once a correct and a wrong rollout of it were seen. Its band is the one that the
    whole group has; only fewer rollouts are paid for."""

    adaptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder(Ranged):
    """The sentence encoder of the diversity figures. `windows`: parts of a trace that it is shown beside the whole,
    of which it reads the first `max_tokens`; head2000chars is the published opening window."""

    name: str = "all-mpnet-base-v2"
    max_tokens: AtLeastOne = 384
    windows: tuple[str, ...] = ("first256", "middle256", "last256", "head2000chars")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassK(Ranged):
    ks: tuple[AtLeastOne, ...] = (1, 2, 4, 8)
    draws: AtLeastOne = 10_000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Ranged):
    """Which problems. `sources`: files and named sets; without any, `synthetic` ones a source, of `levels` by turns.

    limit: keep the first n problems (after deduplication), for short runs on real input.
    on_issue: what happens to a problem whose gold fails its self-check: `exclude` or `keep`.
    """

    sources: tuple[str, ...] = ()
    synthetic: Count = 0
    levels: tuple[Annotated[int, Within(1, 5)], ...] = ()
    seed: int = 0
    limit: AtLeastOne | None = None
    on_issue: Literal["exclude", "keep"] = "exclude"
    heldout_per_source: Count = 25
    split_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A training before the one that is studied: on all of its pool's training problems, without screening.
    Each lesson starts from the adapter of the one before it, with a fresh optimiser."""

    name: str
    arms: tuple[str, ...]
    pool: Pool
    training: LearnerConfig
    rollouts: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Ranged):
    """Problems beside the held-out ones, whose pass@k is measured before training and after, sampled as `final` is.
    What is, or nearly is, a training problem of the study or of its lessons is not asked.

    levels: the problems of these levels only; empty: all. per_level: so many of each, drawn by hash; null: all.
    """

    name: str
    sources: tuple[str, ...]
    levels: tuple[str, ...] = ()
    per_level: AtLeastOne | None = None
    seed: int = 0
    group_size: AtLeastOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Ranged):
    """One complete study, by name.

    train_on: `variance`, the arm's own variance band; `joint`, of that what every trained arm has in its own; or `all`,
    for a model too weak to have one.
    asymptote: rollouts of each held-out problem, before training and after, by which pass@k is followed to its end
    (64, 128); what the ledger holds of them is reused. 0: not asked.
    objectives: every arm is trained by each too, from the same start with the same seeds, and compared with `training`
    by `objective_group_size` rollouts of each held-out problem.
    """

    name: str
    purpose: str
    pool: Pool
    model: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    train_on: Literal["variance", "joint", "all"] = "variance"
    lessons: tuple[Lesson, ...] = ()
    screening: Screening
    rollouts: Sampling
    training: LearnerConfig
    evaluation: SamplingPlan
    final: SamplingPlan
    asymptote: Count = 0
    benchmarks: tuple[Benchmark, ...] = ()
    objectives: tuple[Objective, ...] = ()
    objective_group_size: AtLeastOne = 32
    search: Search = field(default_factory=Search)
    encoder: Encoder = field(default_factory=Encoder)
    passk: PassK = field(default_factory=PassK)
    hardware: Hardware = field(default_factory=Hardware)


OLYMPIAD = ("hmmt_feb_2024", "hmmt_feb_2025", "aime24", "aime25", "olympiadbench", "amc")

DEMO = Profile(
    name="demo",
    purpose="the whole experiment on a laptop: synthetic problems, a 0.4M-parameter model, two arms, 40 steps",
    pool=Pool(synthetic=50, seed=7),
    model="demo",
    arms=("panel", "thinking"),
    screening=Screening(sampling=Sampling(max_tokens=128, seed=1), group_size=8),
    rollouts=Sampling(max_tokens=128, seed=2),
    training=LearnerConfig(steps=40, groups_per_step=8, group_size=8, learning_rate=2e-3, lora_rank=16, lora_alpha=16),
    evaluation=SamplingPlan(sampling=Sampling(max_tokens=128, seed=3), group_size=4),
    final=SamplingPlan(sampling=Sampling(max_tokens=128, seed=3), group_size=8),
    encoder=Encoder(name="all-minilm-l6-v2", max_tokens=256, windows=("first16", "last16")),
    hardware=Hardware(max_model_len=512, max_num_seqs=128, batch_size=256, threads=1, arms_at_once=2),
)

SMALL = Profile(
    name="small",
    purpose="real problems and a real 135M model on a CPU: every stage, one or two steps",
    pool=Pool(sources=("gsm8k_test",), limit=40, heldout_per_source=8),
    model="SmolLM2-135M-Instruct",
    arms=("panel", "thinking"),
    train_on="all",
    screening=Screening(sampling=Sampling(max_tokens=256, seed=1), group_size=8),
    rollouts=Sampling(max_tokens=256, seed=2),
    training=LearnerConfig(steps=2, groups_per_step=2, group_size=8, learning_rate=1e-4, lora_rank=16, lora_alpha=16),
    evaluation=SamplingPlan(sampling=Sampling(max_tokens=256, seed=3), group_size=2),
    final=SamplingPlan(sampling=Sampling(max_tokens=256, seed=3), group_size=4),
    passk=PassK(ks=(1, 2, 4), draws=2_000),
    hardware=Hardware(max_model_len=1024, max_num_seqs=64, batch_size=64, kv_cache_mb=1024),
)

GSM8K_LESSON = Lesson(
    name="gsm8k",
    arms=("panel", "think_tags"),
    pool=Pool(sources=("gsm8k_train",), heldout_per_source=100),
    training=LearnerConfig(steps=60, groups_per_step=8, group_size=16, learning_rate=1e-4, lora_rank=32, lora_alpha=32),
    rollouts=Sampling(max_tokens=512, seed=4),
)

#: The published slices. MATH-500 L5 was sampled 8 times under one arm and 4 times under the other; here both are alike.
BENCHMARKS = (
    Benchmark(
        name="math500_stratified", sources=("math500",), levels=("1", "2", "3", "4", "5"), per_level=10, group_size=4
    ),
    Benchmark(name="math500_l5", sources=("math500",), levels=("5",), group_size=8),
    Benchmark(name="aime", sources=("aime24", "aime25"), group_size=16),
)

# One number of tokens for screening, training and evaluation: a cap that differed between them would confound them.
QWEN_1_5B = Profile(
    name="qwen-1.5b",
    purpose="the study on one GPU: 877 olympiad problems, Qwen2.5-Coder-1.5B-Instruct",
    pool=Pool(sources=OLYMPIAD, split_seed=20260424),
    model="Qwen2.5-Coder-1.5B-Instruct",
    arms=("panel", "thinking"),
    lessons=(GSM8K_LESSON,),
    screening=Screening(sampling=Sampling(max_tokens=1024, seed=1), group_size=8),
    rollouts=Sampling(max_tokens=1024, seed=2),
    training=LearnerConfig(steps=60, groups_per_step=8, group_size=16, learning_rate=5e-5, lora_rank=32, lora_alpha=32),
    evaluation=SamplingPlan(sampling=Sampling(max_tokens=1024, seed=3), group_size=2),
    final=SamplingPlan(sampling=Sampling(max_tokens=1024, seed=3), group_size=8),
    benchmarks=BENCHMARKS,
    hardware=Hardware(
        device="cuda",
        # the longest problem of the pool is a prompt of 1,373 tokens as panel
        max_model_len=3072,
        max_num_seqs=512,
        batch_size=None,
        memory_fraction=0.45,
        dtype="bfloat16",
        # what 25 GiB hold; smaller packs leave the GPU waiting for the program
        token_budget=10240,
        engine_process="both",
        arms_at_once=2,
    ),
)

MATH_LESSON = Lesson(
    name="math",
    arms=("panel", "think_tags"),
    pool=Pool(sources=("math_train",), heldout_per_source=100),
    training=LearnerConfig(
        steps=128,
        groups_per_step=8,
        group_size=16,
        learning_rate=5e-6,
        lora_rank=32,
        lora_alpha=32,
        prompt_order="balanced_by_subject",
    ),
    rollouts=Sampling(max_tokens=12_288, seed=5),
)

PAPER = replace(
    QWEN_1_5B,
    name="paper",
    purpose="the published recipe at its size: Qwen3-30B-A3B, 100 steps, 12,288 tokens",
    model="Qwen3-30B-A3B-Base",
    lessons=(
        replace(
            GSM8K_LESSON,
            training=replace(GSM8K_LESSON.training, steps=128, learning_rate=5e-6),
            rollouts=Sampling(max_tokens=12_288, seed=4),
        ),
        MATH_LESSON,
    ),
    screening=Screening(sampling=Sampling(max_tokens=12_288, seed=1), group_size=8),
    rollouts=Sampling(max_tokens=12_288, seed=2),
    training=LearnerConfig(
        steps=100, groups_per_step=8, group_size=16, learning_rate=5e-6, lora_rank=32, lora_alpha=32, eval_every=10
    ),
    evaluation=SamplingPlan(sampling=Sampling(max_tokens=12_288, seed=3), group_size=1),
    final=SamplingPlan(sampling=Sampling(max_tokens=12_288, seed=3), group_size=16),
    passk=PassK(ks=(1, 2, 4, 8, 16)),
    hardware=replace(QWEN_1_5B.hardware, max_model_len=14_336, memory_fraction=0.6, tensor_parallel=2),
)
