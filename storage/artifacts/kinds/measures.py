"""Kinds of measures: one table each, long form. Any figure may be null; `reason` then says why."""

from __future__ import annotations

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import columns, nullable


class BandCrosstab(
    Ref,
    kind="band_crosstab",
    schema=nullable(
        "metric str, arm str, other str, source str, band str, other_band str",
        "count big, estimate real, low real, high real, p_value real, p_adjusted real, family str, n big",
        "clusters big, reason str",
    ),
):
    """What several arms' bands say together."""


class PassAtK(
    Ref,
    kind="passk",
    schema=nullable(
        "metric str, arm str, step int, source str, k int, estimate real, low real, high real",
        "low_simultaneous real, high_simultaneous real, n big, clusters big, rollouts int, policies int, tokens real",
        "holds_for str, reason str",
    ),
):
    """pass@k and pass^k per policy and source."""


class PassAtKContrasts(
    Ref,
    kind="passk_contrasts",
    schema=nullable(
        "metric str, arm str, step int, other str, other_step int, source str, k int, estimate real",
        "low real, high real, p_value real, p_adjusted real, family str, detectable real, n big, clusters big",
        "seeds int, holds_for str, reason str",
    ),
):
    """Gaps between two policies' pass@k, and how they close with k."""


class Asymptotes(
    Ref,
    kind="asymptotes",
    schema=nullable(
        "arm str, step int, source str, k int, estimate real, low real, high real, doubling real",
        "doubling_low real, doubling_high real, unsolved big, unsolved_below real, n big, rollouts int",
        "policies int, holds_for str, reason str",
    ),
):
    """pass@k followed to its end."""


class Votes(
    Ref,
    kind="votes",
    schema=nullable(
        "metric str, arm str, step int, source str, k int, estimate real, low real, high real, n big",
        "clusters big, seeds int, holds_for str, reason str",
    ),
):
    """maj@k and selection among k rollouts."""


class Tokens(
    Ref,
    kind="tokens",
    schema=nullable(
        "metric str, pairing str, bucket str, source str, arm str, step int, other str, other_step int",
        "n big, estimate real, low real, high real, mean real, other_mean real, median real",
        "other_median real, ratio_mean real, ratio_median real, ratio_geomean real, ratio_min real",
        "ratio_max real, global_ratio real, longer_in big, ratio_low real, ratio_high real",
        "p_wilcoxon real, p_adjusted real, family str, truncated real, other_truncated real",
        "num_correct big, num_tokens big, seeds int, holds_for str, method str, reason str",
    ),
):
    """What a correct answer costs, and how lengths compare pair by pair."""


class Diversity(
    Ref,
    kind="diversity",
    schema=nullable(
        "problem_id str, source str, arm str, step int, seed big, window str, n int, num_correct int",
        "diversity real, diversity_correct real, spread real, clusters int, vendi_of_4 real, coverage real",
        "num_tokens real, num_chars real, length_cv real, share_correct real",
        "per_1000_tokens real, per_1000_chars real, reason str",
    ),
):
    """Spread of each problem's traces."""


class AnswerDiversity(
    Ref,
    kind="answer_diversity",
    schema=nullable(
        "problem_id str, source str, arm str, step int, seed big, n int, answered int, num_correct int",
        "entropy real, disagreement real, distinct int, distinct_of_4 real, distinct_wrong int, reason str",
    ),
):
    """Spread of each problem's answers."""


class DiversityComparison(
    Ref,
    kind="diversity_comparison",
    schema=nullable(
        "metric str, basis str, window str, source str, arm str, step int, other str, other_step int",
        "n big, mean real, other_mean real, difference real, relative real, relative_low real, relative_high real",
        "low real, high real",
        "t real, p_t real, p_normal real",
        "p_value real, p_adjusted real, family str, detectable real, clusters big, seeds int",
        "holds_for str, d_z real, d_z_corrected real, adjusted_difference real, adjusted_low real, adjusted_high real",
        "adjusted_p real, adjusted_p_corrected real, adjusted_reason str",
        "coverage real, other_coverage real, reason str",
    ),
):
    """Diversity of two policies, paired by problem."""


class DiversityCeilings(
    Ref,
    kind="diversity_ceilings",
    schema=nullable(
        "arm str, step int, seed big, window str, floor real, within real, between real, position real, coverage real",
        "n big, problems big, reworded big, reason str",
    ),
):
    """Where a policy's diversity lies between rewording and chance."""


class Curves(
    Ref,
    kind="curves",
    schema=nullable(
        "series str, arm str, step int, source str, metric str, estimate real, low real, high real",
        "p_value real, p_adjusted real, family str, p_equivalent real, p_equivalent_corrected real",
        "detectable real, n big, clusters big",
        "rollouts big, seeds int, method str, training_share real, exposure_share real, holds_for str",
        "reason str",
    ),
):
    """Held-out accuracy and training series by step."""


class GainDifferences(
    Ref,
    kind="gain_differences",
    schema=nullable(
        "metric str, arm str, step int, other str, other_step int, source str, gain real, other_gain real",
        "estimate real, low real, high real, p_value real, p_adjusted real, family str, p_equivalent real",
        "p_equivalent_corrected real",
        "detectable real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """How much more one arm gained than another: the difference of gains, which is the study's answer."""


class SolvedBy(
    Ref,
    kind="solved_by",
    schema=nullable(
        "problem_id str, source str, arm str, step int, other str, other_step int",
        "num_correct big, group_size big, other_correct big, other_group_size big",
        "solved_by str, equal_n bool, chance_of_arm real, chance_of_other real, reason str",
    ),
):
    """Who solved what, and whether the count was fair."""


class Audit(Ref, kind="audit", schema=nullable("code str, fact str, place str, inference str, value real, query str")):
    """Findings of the lints."""


class Disputes(
    Ref,
    kind="grader_disputes",
    schema=columns(
        "problem_id str, source str, gold str, answer str, verdict str, reason str",
        "cross_check str, grader_version str",
        "rollouts big",
    ),
):
    """Answers on which an independent reading disagrees with the grader."""
