"""Kinds of the experiment itself: problems, rollouts, bands, trainings, embeddings, the report."""

from __future__ import annotations

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import columns, joined, nullable

VERDICT = columns(
    "answer str?",  # as extracted from the answer region
    "canonical str?",  # its canonical form
    "verdict str",  # correct | wrong | no_answer | ambiguous | timeout | ungradable
    "reason str",
    "correct bool",
    "grader_version str",
)
ROLLOUT = joined(
    columns(
        "problem_id str",
        "source str",
        "arm str",
        "adapter str?",
        "step int",  # policy; step 0 = no training
        "seed big",  # of the training behind the adapter; 0 without one
        "rollout int",  # index in its group
        "completion str",
        "trace str?",
        "tag_valid bool",
    ),
    VERDICT,
    columns(
        "finish str",  # stop | length
        "num_prompt_tokens int",
        "num_tokens int",
        "logprob_sum real?",  # of the sampled tokens under the behaviour policy
    ),
)
#: A ledger row is a rollout plus what training needs of it.
LEDGER = joined(
    ROLLOUT,
    columns(
        "gold str",
        "request_seed big",
        "prompt_ids ints",
        "token_ids ints",
        "logprobs reals",
        "engine str",
        "reading str?",  # digest of how the scaffold read it: tags and answer form
    ),
)
#: How often training used each problem: the file exposure.parquet beside a training's rows.
EXPOSURE = columns(
    "arm str", "seed big", "step int", "problem_id str", "source str", "num_correct int", "group_size int", "live bool"
)
#: What a training's objective says of each step: the file diagnostics.parquet beside its rows.
DIAGNOSTICS = columns("arm str", "seed big", "step int", "metric str", "value real")
BAND = columns(
    "problem_id str",
    "source str",
    "arm str",
    "group_size int",
    "num_correct int",
    "band str",  # all_zero | variance | all_one
)


class Pool(
    Ref,
    kind="pool",
    schema=columns(
        "problem_id str",  # content hash of the normalised text
        "source str",  # competition set
        "source_id str",  # the uid under which the source publishes it
        "problem str",
        "gold str",  # canonical reference answer
        "gold_raw str",  # as the source spells it
        "answer_type str",  # integer | rational | expression | tuple | set | list | interval | equation | text
        "cluster str",  # near-duplicates share it; a cluster stays on one side of a split
        "year int?",
        "level str?",
        "subject str?",
    ),
):
    """Deduplicated gradable problems."""


class PoolIssues(
    Ref,
    kind="pool_issues",
    schema=columns(
        "problem_id str",
        "source_id str",
        "source str",
        "code str",  # machine-readable reason
        "severity str",  # exclude | warn
        "detail str",
        "excluded bool",  # what the profile's policy did with it
    ),
):
    """What the checks of a pool found."""


class Splits(Ref, kind="splits", schema=columns("problem_id str, source str, split str")):
    """train | heldout, for every problem of a pool."""


class Benchmark(
    Ref,
    kind="benchmark",
    schema=columns(
        "benchmark str",
        "problem_id str",
        "source str",
        "source_id str",
        "level str?",
        "split str",  # benchmark | near_training | not_drawn | other_level
        "near str?",  # source_id of the training problem that it is or nearly is
        "similarity real?",  # 1 = contained
    ),
):
    """Every problem of a benchmark's pool: is it asked, and if not, why."""


class ArmSplits(Ref, kind="arm_splits", schema=columns("problem_id str, source str, arm str, split str")):
    """A split seen with each arm's bands."""


class Rollouts(Ref, kind="rollouts", schema=ROLLOUT):
    """Graded rollouts of one policy."""


class Partitions(
    Ref,
    kind="partitions",
    schema=columns(
        "problem_id str, arm str, adapter str?, step int, seed big, rollout int",
        "answer_class int?",  # among the problem's answers: 0 = correct, 1, 2, … the wrong ones; null = no answer
        "trace_class int?",  # among the problem's traces, by the encoder; null = no trace
        "strategy_class int?",  # by equations and methods; null = no trace, or one that has neither
    ),
):
    """Which rollouts of a problem gave the same answer, which have the same trace, which the same strategy."""


class Calibrations(
    Ref,
    kind="calibrations",
    schema=columns(
        "partition str",  # trace | strategy
        "threshold real",  # similarity from which on two traces may be of one class
        "encoder str?",
        "precision real?, precision_low real?, precision_high real?",  # of pairs in one class: of one solution
        "recall real?, recall_low real?, recall_high real?",  # of pairs of one solution: in one class
        "joined big, joined_rightly big, same big, pairs big, problems big, traces big",
        "reason str?",  # why an interval is missing
    ),
):
    """From which similarity on two traces are the same, and how often that is right on labelled ones."""


class Bands(Ref, kind="bands", schema=BAND):
    """The band of each problem of one policy's screening."""


class JointBands(Bands, kind="joint_bands"):
    """One arm's bands, without what of its variance band another arm does not share."""


class Training(
    Ref,
    kind="training",
    schema=columns(
        "arm str",
        "seed big",
        "step int",
        "reward_mean real",
        "correct_mean real",
        "tag_valid_mean real",
        "live_groups real",  # share of the step's groups with a non-zero advantage
        "all_zero int",
        "variance int",
        "all_one int",  # groups by band, of `correct`
        "entropy real?",  # mean over trained tokens, nats; null if no live group
        "length_mean real",
        "length_cv_within real?",
        "truncated real",
        "ratio_mean real?",
        "ratio_max real?",
        "kl_behaviour real?",
        "kl_start real?",  # k3 to where training started; null where the loss does not hold it
        "masked_tokens big",  # non-finite behaviour log-probs
        "bounded_tokens big",  # log-ratio above the bound of every loss: they carry no gradient through it
        "loss real?",
        "grad_norm real?",
        "learning_rate real",
        "num_tokens big",
        "trained_tokens big",  # each as often as it was trained on
        "updates int",  # of the optimiser; 0 where no group is live: weights and moments are untouched
        "skipped_updates int",  # gradients that were not finite
    ),
):
    """One row a step; beside them the evaluated steps' adapters, exposure.parquet and diagnostics.parquet."""

    WEIGHTS = "files/step-"


#: Columns of Training that people follow by step.
TRAINING_METRICS = (
    "correct_mean",
    "reward_mean",
    "tag_valid_mean",
    "live_groups",
    "entropy",
    "length_mean",
    "length_cv_within",
    "truncated",
    "kl_behaviour",
    "ratio_max",
    "grad_norm",
)


class Embeddings(
    Ref,
    kind="embeddings",
    schema=columns(
        "problem_id str, source str, arm str, step int, seed big, rollout int, window str, correct bool",
        "coverage real",  # share of the trace that the encoder saw
        "num_tokens int, num_chars int",
        "embedding reals",
    ),
):
    """Unit vectors of traces."""


class Report(
    Ref,
    kind="report",
    schema=nullable(
        "arm str, seed big, problems big, all_zero big, variance big, all_one big",
        "heldout_before real, heldout_after real, gain real, gain_low real, gain_high real",
        "diversity_before real, diversity_after real, tokens_per_correct real",
        "no_answer real, invalid_tags real, truncated real, updates big",
    ),
):
    """One row per arm and seed; beside them report.html and report.md."""
