"""All kinds of artifacts: the data dictionary. Each kind is a class that owns its schema. A column means the same in
every kind. The further columns of a ledger row are in `LEDGER` of `storage/ledger.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import get_args, get_type_hints

from storage.artifacts.manifest import Group
from storage.artifacts.ref import Ref
from storage.artifacts.rows import columns, joined, nullable

# ---- the experiment: problems, rollouts, bands, trainings, embeddings, the report

VERDICT = columns(
    "answer str?, canonical str?",  # as extracted from the answer region, and its canonical form
    "verdict str",  # correct | wrong | no_answer | ambiguous | timeout | ungradable
    "reason str, correct bool, grader_version str",
)
ROLLOUT = joined(
    columns(
        "problem_id str, source str, arm str, adapter str?",
        "step int",  # of the policy; 0 = no training
        "seed big",  # of the training behind the adapter; 0 without one
        "rollout int",  # index in its group
        "completion str, trace str?, tag_valid bool",
    ),
    VERDICT,
    columns(
        "finish str",  # stop | length
        "num_prompt_tokens int, num_tokens int",
        "logprob_sum real?",  # of the sampled tokens under the behaviour policy
    ),
)
#: How often a training used each problem. The file exposure.parquet next to the training's rows has this schema.
EXPOSURE = columns(
    "arm str, seed big, step int, problem_id str, source str, num_correct int, group_size int, live bool"
)
#: Diagnostics of a training's objective by step. The file diagnostics.parquet next to its rows has this schema.
DIAGNOSTICS = columns("arm str, seed big, step int, metric str, value real")


class Pool(
    Ref,
    kind="pool",
    schema=columns(
        "problem_id str",  # content hash of the normalised text
        "source str",  # competition set
        "source_id str",  # the uid under which the source publishes it
        "problem str",
        "gold str, gold_raw str",  # canonical reference answer, and as the source spells it
        "answer_type str",  # integer | rational | expression | tuple | set | list | interval | equation | text
        "cluster str",  # near-duplicates share it; a cluster stays on one side of a split
        "year int?, level str?, subject str?",
    ),
):
    """The problems that remain after removing duplicates and problems that cannot be graded."""


class PoolIssues(
    Ref,
    kind="pool_issues",
    schema=columns(
        "problem_id str, source_id str, source str",
        "code str, severity str",  # machine-readable reason; exclude | warn
        "detail str",
        "excluded bool",  # by the profile's pool policy
    ),
):
    """Findings of the checks of a pool."""


class Splits(Ref, kind="splits", schema=columns("problem_id str, source str, split str")):
    """The side of every problem of a pool: train or heldout."""


class Benchmark(
    Ref,
    kind="benchmark",
    schema=columns(
        "benchmark str, problem_id str, source str, source_id str, level str?",
        "split str",  # benchmark | near_training | not_drawn | other_level
        "near str?",  # source_id of the training problem that it is or nearly is
        "similarity real?",  # 1 = contained
    ),
):
    """Every problem of a benchmark's pool: whether it is evaluated, or why not."""


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
    """The classes of a problem's rollouts by answer, trace and strategy."""


class Calibrations(
    Ref,
    kind="calibrations",
    schema=columns(
        "partition str",  # trace | strategy
        "threshold real",  # least similarity of two traces in one class
        "encoder str?",
        "precision real?, precision_low real?, precision_high real?",  # share of pairs in one class with one solution
        "recall real?, recall_low real?, recall_high real?",  # share of pairs with one solution in one class
        "joined big, joined_rightly big, same big, pairs big, problems big, traces big",
        "reason str?",  # why an interval is missing
    ),
):
    """The similarity thresholds of partitions, with their precision and recall on labelled traces."""


class Bands(
    Ref,
    kind="bands",
    schema=columns(
        "problem_id str, source str, arm str, group_size int, num_correct int",
        "band str",  # all_zero | variance | all_one
    ),
):
    """The band of each problem in the screening of one policy."""


class JointBands(Bands, kind="joint_bands"):
    """The bands of one arm, where the variance band has only problems that are in the variance band of all arms."""


class Training(
    Ref,
    kind="training",
    schema=columns(
        "arm str, seed big, step int, reward_mean real, correct_mean real, tag_valid_mean real",
        "live_groups real",  # share of the step's groups with a non-zero advantage
        "all_zero int, variance int, all_one int",  # groups by band, of `correct`
        "entropy real?",  # mean over trained tokens, nats; null if no live group
        "length_mean real, length_cv_within real?, truncated real",
        "ratio_mean real?, ratio_max real?, kl_behaviour real?",
        "kl_start real?",  # k3 estimate of the KL to the start; null if the loss has no KL term
        "masked_tokens big",  # non-finite behaviour log-probs
        "bounded_tokens big",  # tokens with a log-ratio above the bound of all losses, which have no gradient
        "loss real?, grad_norm real?, learning_rate real, num_tokens big",
        "trained_tokens big",  # counted as often as trained on
        "updates int",  # of the optimiser; 0 without a live group, which leaves weights and moments unchanged
        "skipped_updates int",  # gradients that were not finite
    ),
):
    """One row per step. Files: the adapters of evaluated steps, exposure.parquet and diagnostics.parquet."""

    WEIGHTS = "files/step-"


#: Columns of Training that are plotted by step.
TRAINING_METRICS = (
    *("correct_mean", "reward_mean", "tag_valid_mean", "live_groups", "entropy", "length_mean"),
    *("length_cv_within", "truncated", "kl_behaviour", "ratio_max", "grad_norm"),
)


class Embeddings(
    Ref,
    kind="embeddings",
    schema=columns(
        "problem_id str, source str, arm str, step int, seed big, rollout int, window str, correct bool",
        "coverage real",  # share of the trace that the encoder saw
        "num_tokens int, num_chars int, embedding reals",
    ),
):
    """The encoder's unit vectors of traces."""


class Report(
    Ref,
    kind="report",
    schema=nullable(
        "arm str, seed big, problems big, all_zero big, variance big, all_one big, heldout_before real",
        "heldout_after real, gain real, gain_low real, gain_high real, diversity_before real, diversity_after real",
        "tokens_per_correct real, no_answer real, invalid_tags real, truncated real, updates big",
    ),
):
    """One row per arm and seed, with the files report.html and report.md."""


class Searches(
    Ref,
    kind="searches",
    schema=columns(
        "problem_id str, source str, arm str, adapter str?, step int, seed big, method str",
        "round int",  # from 0
        "node str",  # the completion's key in the ledger: context and index
        "operator str",  # draw: the problem itself; revise, critique, score, …: a question that quotes its parents
        "parents str",  # nodes, separated by spaces
        "question str?",  # prompt instead of the problem
        "completion str?, answer str?",  # as read without a gold; null if it was cut
        "correct bool",  # against the gold, which no method sees; false for answers to another question
        "finish str?, num_prompt_tokens int, num_tokens int, logprob_sum real?",
        "score real?, num_scored_tokens int",  # of a reward model, and the tokens of this node's path that it read
        "cut str?",  # why it could not be sampled
        "chosen str?, chosen_answer str?, chosen_correct bool",  # the search's answer after this round
        "grader_version str",
    ),
):
    """The tree of one policy's search, under one method, for each problem: one row per completion."""


# ---- measures: one long table each. Any value may be null; `reason` then says why.


class BandCrosstab(
    Ref,
    kind="band_crosstab",
    schema=nullable(
        "metric str, arm str, other str, source str, band str, other_band str, count big, estimate real, low real",
        "high real, p_value real, p_adjusted real, family str, n big, clusters big, reason str",
    ),
):
    """The bands of several arms compared."""


class PassAtK(
    Ref,
    kind="passk",
    schema=nullable(
        "metric str, arm str, step int, source str, k int, estimate real, low real, high real, low_simultaneous real",
        "high_simultaneous real, n big, clusters big, rollouts int, policies int, tokens real, holds_for str",
        "reason str",
    ),
):
    """pass@k and pass^k per policy and source."""


class PassAtKContrasts(
    Ref,
    kind="passk_contrasts",
    schema=nullable(
        "metric str, arm str, step int, other str, other_step int, source str, k int, estimate real, low real",
        "high real, p_value real, p_adjusted real, family str, detectable real, n big, clusters big, seeds int",
        "holds_for str, reason str",
    ),
):
    """Gaps between two policies' pass@k, and their closure with k."""


class Asymptotes(
    Ref,
    kind="asymptotes",
    schema=nullable(
        "arm str, step int, source str, k int, estimate real, low real, high real, doubling real, doubling_low real",
        "doubling_high real, unsolved big, unsolved_below real, n big, rollouts int, policies int, holds_for str",
        "reason str",
    ),
):
    """pass@k up to the number of rollouts, and how it grows when k doubles."""


class Votes(
    Ref,
    kind="votes",
    schema=nullable(
        "metric str, arm str, step int, source str, k int, estimate real, low real, high real, n big, clusters big",
        "seeds int, holds_for str, reason str",
    ),
):
    """Accuracy of maj@k (majority vote of k rollouts) and of other ways to choose among k rollouts."""


class Tokens(
    Ref,
    kind="tokens",
    schema=nullable(
        "metric str, bucket str, source str, arm str, step int, other str, other_step int, n big, estimate real",
        "low real, high real, mean real, other_mean real, median real, other_median real, ratio_median real",
        "ratio_geomean real, ratio_min real, ratio_max real, longer_in big, ratio_low real, ratio_high real",
        "p_wilcoxon real, p_adjusted real, family str, truncated real, other_truncated real, num_correct big",
        "num_tokens big, seeds int, holds_for str, method str, reason str",
    ),
):
    """Tokens per correct answer, and paired comparison of lengths."""


class Diversity(
    Ref,
    kind="diversity",
    schema=nullable(
        "problem_id str, source str, arm str, step int, seed big, window str, n int, num_correct int, diversity real",
        "diversity_correct real, spread real, clusters int, vendi_of_4 real, coverage real, num_tokens real",
        "num_chars real, length_cv real, share_correct real, per_1000_tokens real, per_1000_chars real, reason str",
    ),
):
    """Diversity of each problem's traces."""


class AnswerDiversity(
    Ref,
    kind="answer_diversity",
    schema=nullable(
        "problem_id str, source str, arm str, step int, seed big, n int, answered int, num_correct int, entropy real",
        "disagreement real, distinct int, distinct_of_4 real, distinct_wrong int, reason str",
    ),
):
    """Diversity of each problem's answers."""


class DiversityComparison(
    Ref,
    kind="diversity_comparison",
    schema=nullable(
        "metric str, basis str, window str, source str, arm str, step int, other str, other_step int, n big, mean real",
        "other_mean real, difference real, relative real, relative_low real, relative_high real, low real, high real",
        "t real, p_t real, p_normal real, p_value real, p_adjusted real, corrected_low real, corrected_high real",
        "family str, detectable real, clusters big, seeds int, holds_for str, d_z real, d_z_corrected real",
        "adjusted_difference real, adjusted_low real, adjusted_high real, adjusted_p real, adjusted_p_corrected real",
        "adjusted_reason str, coverage real, other_coverage real, reason str",
    ),
):
    """The diversity of two policies compared, paired by problem."""


class DiversityCeilings(
    Ref,
    kind="diversity_ceilings",
    schema=nullable(
        "arm str, step int, seed big, window str, floor real, within real, between real, position real, coverage real",
        "n big, problems big, reworded big, reason str",
    ),
):
    """A policy's diversity with two references: the distance between a trace and its reworded version, and the distance
    between traces of different problems."""


class Curves(
    Ref,
    kind="curves",
    schema=nullable(
        "series str, arm str, step int, source str, metric str, estimate real, low real, high real, p_value real",
        "p_adjusted real, family str, p_equivalent real, p_equivalent_corrected real, detectable real, n big",
        "clusters big, rollouts big, seeds int, method str, training_share real, exposure_share real, holds_for str",
        "reason str",
    ),
):
    """Held-out accuracy and training series by step."""


class GainDifferences(
    Ref,
    kind="gain_differences",
    schema=nullable(
        "metric str, arm str, step int, other str, other_step int, source str, gain real, other_gain real",
        "estimate real, low real, high real, sequence_low real, sequence_high real, p_value real, p_adjusted real",
        "corrected_low real, corrected_high real, family str, p_equivalent real, p_equivalent_corrected real",
        "detectable real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """The difference of gains between arms: the main result of a study."""


class SolvedBy(
    Ref,
    kind="solved_by",
    schema=nullable(
        "problem_id str, source str, arm str, step int, other str, other_step int, num_correct big, group_size big",
        "other_correct big, other_group_size big, solved_by str, equal_n bool, chance_of_arm real",
        "chance_of_other real, reason str",
    ),
):
    """For each problem, which of two policies solved it, and whether they had equally many rollouts."""


class Audit(Ref, kind="audit", schema=nullable("code str, fact str, place str, inference str, value real, query str")):
    """Findings of the audit."""


# ---- kinds that only the import of the published study makes


class Groups(
    Ref,
    kind="groups",
    schema=nullable(
        "arm str, step int, adapter str, seed big, problem_id str, source str, group_size int, num_correct int",
        "num_tokens big, truncated int",
    ),
):
    """Counts of correct rollouts in groups whose rollouts were not published."""


class TrainingPools(Ref, kind="training_pools", schema=nullable("pool str, problem_id str, source str")):
    """The problems of each published training set."""


class TrainingSeries(Ref, kind="training_series", schema=nullable("arm str, step int, metric str, value real, n big")):
    """Published series of the training, by step."""


class TokenChecks(
    Ref,
    kind="token_checks",
    schema=nullable("bench str, check str, printed real, follows real, holds bool, detail str"),
):
    """Checks whether the published study's table of tokens agrees with itself."""


class Designs(
    Ref,
    kind="designs",
    schema=nullable(
        "run str, role str, family str, arm str, model str, policy str, problems str, num_problems big, group_size big",
        "temperature real, top_p real, learned_at real, max_tokens big, steps big, last_evaluated big, seeds big",
        "grader str, truncated real, truncated_bound bool, planned_problems big, place str",
    ),
):
    """The design of each published run."""


# ---- the inputs of a report, by the names that measures and queries use


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems(Group):
    """The problems of a study. benchmarks: the problems of each benchmark."""

    pool: Pool
    splits: Splits
    benchmarks: tuple[Benchmark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Group):
    """Artifacts of every arm that the report reads in addition to its tables. Each tuple may be empty.

    - screenings, bands: one per arm. trainings: one per arm and seed.
    - evaluations: held-out rollouts for the curve. sliced: all rollouts on benchmarks.
    - final: rollouts of the base and of the last adapter, more per problem; also their diversities and answers.
    - calibrations: thresholds of the partitions. searches: of the policies in `final`, one per method.
    """

    screenings: tuple[Rollouts, ...]
    bands: tuple[Bands, ...]
    trainings: tuple[Training, ...]
    evaluations: tuple[Rollouts, ...]
    final: tuple[Rollouts, ...]
    diversities: tuple[Diversity, ...]
    answers: tuple[AnswerDiversity, ...] = ()
    sliced: tuple[Rollouts, ...] = ()
    calibrations: tuple[Calibrations, ...] = ()
    searches: tuple[Searches, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Group):
    """Comparisons of arms. The report's sentences read the named fields; only figures read `standard`, whose keys are
    the names of tasks/evidence.py. slices, slice_contrasts: pass@k, one artifact per benchmark."""

    crosstab: BandCrosstab
    curves: Curves
    diversity: DiversityComparison
    passk: PassAtK
    audit: Audit
    gain_differences: GainDifferences | None = None
    contrasts: PassAtKContrasts | None = None
    slices: tuple[PassAtK, ...] = ()
    slice_contrasts: tuple[PassAtKContrasts, ...] = ()
    standard: Mapping[str, Ref] = field(default_factory=dict)


def _kind(hint: object) -> type[Ref] | None:
    return hint if isinstance(hint, type) and issubclass(hint, Ref) and hint is not Ref else None


_HINTS = {f.name: get_type_hints(group)[f.name] for group in (Problems, Evidence, Tables) for f in fields(group)}
#: The inputs that every report has, each with its kind.
ALWAYS = {name: kind for name, hint in _HINTS.items() if (kind := _kind(hint))}
#: The inputs of which a report may have none or several, each with its kind.
SOMETIMES = {name: kind for name, hint in _HINTS.items() for part in get_args(hint) if (kind := _kind(part))}
#: Standard measures that need more rollouts, so that a study requests them with a separate field.
ON_REQUEST = frozenset({"asymptotes", "objectives", "search_contrasts", "search_curves"})
#: Artifacts and standard measures that need embeddings. A study without any of these computes no embeddings.
FROM_EMBEDDINGS = frozenset({"diversity", "ceilings", "chain", "widths"})
