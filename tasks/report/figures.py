"""What the report shows: each figure is a named query, the artifacts that it reads, and how its rows are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.report.drawings import Drawing, bars, curve, dots, each, heat


@dataclass(frozen=True, slots=True)
class Figure:
    """name: the query is `report_<name>`. sources: arguments of the report's stage whose rows it reads.
    empty: why there may be nothing to show."""

    name: str
    title: str
    caption: str
    sources: tuple[str, ...]
    draw: Drawing | None = None
    empty: str = "the artifact has no row."


@dataclass(frozen=True, slots=True)
class Section:
    """only_with: argument of the report's stage without which a report does not have this section."""

    id: str
    title: str
    lead: str
    figures: tuple[Figure, ...]
    only_with: str | None = None


ONE_ARM = "there is only one arm or one policy, so there is nothing to compare."


def _by_step(name: str, column: str, title: str, caption: str, y_name: str, *, share: bool = False) -> Figure:
    draw = curve("step", column, "step", y_name, share=share)
    return Figure(name, title, caption, ("trainings",), draw)


SECTIONS = (
    Section(
        "result",
        "Result",
        "",
        (
            Figure(
                "summary",
                "Every arm",
                "Problems by band at screening; held-out accuracy at the start and under the last adapter,"
                " never the best one; diversity; tokens per correct answer of the last adapter, else of the start.",
                ("bands", "final", "trainings", "diversities", "contrasts"),
            ),
        ),
    ),
    Section(
        "bands",
        "Bands",
        "A group-relative method learns only from problems whose group holds both correct and"
        " wrong rollouts: the variance band.",
        (
            Figure(
                "bands",
                "Problems by band",
                "All problems of the pool, by how many rollouts of the screening group were correct.",
                ("bands",),
                bars(lambda row: row["arm"]),
            ),
            Figure(
                "band_sources",
                "Bands by source",
                "The same, by competition set.",
                ("bands",),
                bars(lambda row: f"{row['source']} · {row['arm']}"),
            ),
            Figure(
                "crosstab",
                "Two arms against each other",
                "Each problem by its band under one arm (rows) and under the other (columns).",
                ("crosstab",),
                heat,
                ONE_ARM,
            ),
            Figure(
                "band_tests",
                "What the cross-tab says",
                "ratio and shared/only: of the variance bands; mcnemar: is being in the variance band independent of"
                " the arm; stuart_maxwell, bowker: are the bands' margins, the whole table symmetric; weighted_kappa:"
                " agreement beyond chance.",
                ("crosstab",),
                None,
                ONE_ARM,
            ),
            Figure(
                "band_expectations",
                "How much of a band is luck",
                "Beta-binomial fit: share of groups expected to have"
                " a gradient at the training group size (expected_live, and of today's variance band), and share of"
                " all_zero and all_one problems that would be live in another draw (mislabelled). adaptive_saving:"
                " rollouts that leaving a problem once both outcomes were seen saves, for the same bands.",
                ("crosstab",),
            ),
        ),
    ),
    Section(
        "training",
        "Training",
        "Held-out problems are never trained on and are the same for every arm and seed.",
        (
            Figure(
                "curves",
                "Held-out accuracy by step",
                "Mean over problems; shaded: 95 % interval over problems and seeds.",
                ("curves",),
                curve("step", "heldout_rate", "step", "held-out accuracy", share=True),
            ),
            _by_step(
                "reward",
                "correct_mean",
                "Correct rollouts in training",
                "Share of correct rollouts of each step.",
                "correct",
                share=True,
            ),
            _by_step(
                "live_groups",
                "live_groups",
                "Groups with a gradient",
                "Share of a step's groups whose advantages are not all zero: the variance band as training moves it.",
                "live groups",
                share=True,
            ),
            _by_step("entropy", "entropy", "Entropy", "Mean over each step's trained tokens.", "entropy (nats)"),
            _by_step(
                "length_cv",
                "length_cv_within",
                "Spread of lengths within a group",
                "Coefficient of variation of"
                " completion length within a group, mean over groups: a cheap stand-in for diversity.",
                "length CV",
            ),
            Figure(
                "gains",
                "Gains by source, against exposure",
                "Last evaluated step minus the first, paired by problem,"
                " on the curve's rollouts; beside it the share of the training pool, and of the groups really trained"
                " on, that came from the source.",
                ("curves", "trainings"),
            ),
            Figure(
                "curve_sources", "Held-out accuracy by source", "At the first and the last evaluated step.", ("curves",)
            ),
        ),
        only_with="trainings",
    ),
    Section(
        "diversity",
        "Diversity",
        "Mean pairwise cosine distance between the traces of one problem. The encoder"
        " reads only the first part of a long trace: coverage says how much.",
        (
            Figure(
                "diversity_pairs",
                "Problem by problem",
                "One line a problem, wide bars are means.",
                ("diversities", "final", "trainings"),
                dots,
                ONE_ARM,
            ),
            Figure(
                "diversity_policies",
                "Diversity of each policy",
                "Means over problems, with length and accuracy, which confound it.",
                ("diversities", "final", "trainings"),
            ),
            Figure(
                "diversity",
                "Policies compared",
                "Paired by problem, arm minus other. adjusted: the difference left"
                " where lengths and accuracies do not differ. p_t: t-distribution; p_holm: corrected over all pairs.",
                ("diversity",),
                None,
                ONE_ARM,
            ),
            Figure(
                "windows",
                "Window by window",
                "The same comparison on other parts of the traces. A trace that is"
                " shorter than a window is shown whole, and then windows agree.",
                ("diversity",),
                None,
                ONE_ARM,
            ),
            Figure(
                "ceilings",
                "Floor and ceiling",
                "floor: distance of a trace from itself in other words; within: of two"
                " traces of one problem; between: of two problems, what shuffling the problems would give; position:"
                " where within lies from floor to ceiling.",
                ("ceilings",),
                None,
                "they were not measured in this run.",
            ),
            Figure(
                "answers",
                "Without an encoder",
                "How the final answers of a group differ. A policy that is always right has 0 of each.",
                ("answers",),
                None,
                "answer diversity was not measured in this run.",
            ),
        ),
    ),
    Section(
        "passk",
        "pass@k",
        "The chance that at least one of k rollouts is correct; unbiased, and missing where a"
        " problem has fewer than k rollouts.",
        (
            Figure(
                "passk",
                "pass@k of the held-out problems",
                "Shaded: bands that hold for all k together (95 %).",
                ("passk",),
                curve("k", "pass_at_k", "k (log scale)", "pass@k", share=True, log_x=True),
            ),
            Figure(
                "equal_tokens",
                "Coverage at equal tokens",
                "The same points, by what k rollouts cost: compare heights at one place of the horizontal axis.",
                ("passk",),
                curve("tokens", "pass_at_k", "completion tokens (log scale)", "pass@k", share=True, log_x=True),
            ),
            Figure(
                "gaps",
                "Gaps and their closure",
                "gap: arm minus other at k; equal_tokens: arm at k"
                " minus other at as many rollouts as cost the same; closure: how much of the gap at the"
                " smallest k is gone at the largest; monotone: share of bootstrap draws in which every step of k"
                " narrows it.",
                ("contrasts",),
                None,
                "contrasts of pass@k were not made in this run.",
            ),
            Figure("passk_sources", "pass@k by source", "Point-wise 95 % intervals.", ("passk",)),
            Figure("pass_all_k", "pass^k", "The chance that all of k rollouts are correct: reliability.", ("passk",)),
            Figure(
                "votes",
                "One answer from k rollouts",
                "maj@k: the most frequent answer; best-of-k by selectors that"
                " cost nothing: shortest@k, likeliest@k (highest mean log-probability a token). pass@k is best-of-k"
                " with a perfect selector.",
                ("votes",),
                None,
                "voting was not measured in this run.",
            ),
            Figure(
                "asymptotes",
                "Where pass@k ends",
                "k doubled up to the last rollout. doubling: what the last doubling"
                " added, near zero at the asymptote; unsolved below: the chance of a correct rollout that an unsolved"
                " problem may still have (95 %).",
                ("asymptotes",),
                curve("k", "pass_at_k", "k (log scale)", "pass@k", share=True, log_x=True),
                "not asked in this run (profile field asymptote).",
            ),
        ),
    ),
    Section(
        "benchmarks",
        "pass@k on benchmarks",
        "Problems beside the held-out ones, asked of the same policies in the same way.",
        (
            Figure(
                "benchmarks",
                "What is asked",
                "Problems of each benchmark's levels. near_training: left out, because"
                " they stand or nearly stand among this study's training problems, of any arm and lesson; contained: of"
                " these, word for word; not_drawn: of a level that had more than enough.",
                ("benchmarks",),
            ),
            Figure(
                "slices",
                "pass@k by benchmark",
                "Shaded: bands that hold for all k together (95 %).",
                ("slices", "benchmarks"),
                each(
                    "benchmark",
                    lambda name: curve("k", "pass_at_k", "k (log scale)", f"pass@k on {name}", share=True, log_x=True),
                ),
            ),
            Figure(
                "slice_gaps",
                "Gaps and their closure by benchmark",
                "Arm minus other at the smallest k and at the"
                " largest; closure: how much of the first gap is gone at the last; monotone: share of bootstrap draws"
                " in which every step of k narrows it. Point-wise 95 % intervals over problems.",
                ("slice_contrasts", "benchmarks"),
                None,
                ONE_ARM,
            ),
        ),
        only_with="benchmarks",
    ),
    Section(
        "tokens",
        "Token efficiency",
        "Accuracy per rollout and cost per correct answer may order two arms"
        " differently; truncation stands beside every ratio.",
        (
            Figure(
                "tokens", "Tokens per correct answer", "All completion tokens over all correct answers.", ("tokens",)
            ),
            Figure(
                "token_pairs",
                "Lengths, pair by pair",
                "Ratios are other over arm. Pairing by rollout index as"
                " published, and by problem as independence asks; the test is given for problems only.",
                ("tokens",),
                None,
                ONE_ARM,
            ),
        ),
    ),
    Section(
        "hard",
        "Hard problems",
        "A problem is solved if any of its rollouts is correct.",
        (
            Figure("hard", "Who solves what", "Every two policies on the held-out problems.", ("hard",), None, ONE_ARM),
            Figure(
                "hard_problems",
                "Problems that divide the arms",
                "Solved under one arm and not under the other.",
                ("hard",),
                None,
                "every problem is solved by both arms or by neither.",
            ),
        ),
    ),
    Section(
        "spending",
        "Spending",
        "",
        (
            Figure(
                "spending",
                "Rollouts and tokens",
                "What each purpose used. Rollouts that two purposes share were paid for once.",
                ("screenings", "evaluations", "final", "sliced", "trainings"),
            ),
        ),
    ),
    Section(
        "audit",
        "Audit",
        "",
        (
            Figure(
                "audit",
                "Findings about the design",
                "What could make a comparison above mean less than it seems.",
                ("audit",),
                None,
                "no finding: every design check passed.",
            ),
        ),
    ),
)
FIGURES = {figure.name: figure for section in SECTIONS for figure in section.figures}
