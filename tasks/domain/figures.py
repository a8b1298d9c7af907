"""What the report shows: each figure is a named query, the artifacts that it reads, and how its rows are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.drawings import Draw, bars, curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """name: the query is `report_<name>`. sources: arguments of the report's stage whose rows it reads.
    empty: why there may be nothing to show."""

    name: str
    title: str
    caption: str
    sources: tuple[str, ...]
    draw: Draw | None = None
    empty: str = "the artifact has no row."


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    id: str
    title: str
    figures: tuple[Figure, ...]
    lead: str = ""


NO_TRAINING = "nothing was trained in this run."

SECTIONS = (
    Section(
        id="result",
        title="Result",
        figures=(
            Figure(
                name="summary",
                title="Every arm, before and after",
                caption="Problems by band at screening; held-out accuracy of the base and of the last adapter, never of"
                " the best one; diversity; tokens per correct answer of the last adapter, else of the base.",
                sources=("bands", "final", "trainings", "diversities", "curves"),
            ),
        ),
    ),
    Section(
        id="bands",
        title="Bands",
        lead="Only problems with both correct and wrong rollouts in their group give a group-relative gradient.",
        figures=(
            Figure(
                name="bands",
                title="Problems by band",
                caption="All problems of the pool, per arm, by how many rollouts of the screening group were correct.",
                sources=("bands",),
                draw=bars(lambda row: str(row["arm"])),
            ),
            Figure(
                name="band_sources",
                title="Bands by source",
                caption="The same, by competition set.",
                sources=("bands",),
                draw=bars(lambda row: f"{row['source']} · {row['arm']}"),
            ),
            Figure(
                name="crosstab",
                title="Two arms against each other",
                caption="Each problem under both arms.",
                sources=("crosstab",),
            ),
        ),
    ),
    Section(
        id="training",
        title="Training",
        lead="Held-out problems are never trained on and are the same for every arm and seed.",
        figures=(
            Figure(
                name="curves",
                title="Held-out by step",
                caption="Held-out accuracy as training goes.",
                sources=("curves",),
                empty=NO_TRAINING,
            ),
            Figure(
                name="reward",
                title="Correct rollouts in training",
                caption="Share of correct rollouts among those of each step.",
                sources=("trainings",),
                draw=curve("step", "correct_mean", "step", "correct", share=True),
                empty=NO_TRAINING,
            ),
            Figure(
                name="live_groups",
                title="Groups with a gradient",
                caption="Share of a step's groups whose advantages are not all zero.",
                sources=("trainings",),
                draw=curve("step", "live_groups", "step", "live groups", share=True),
                empty=NO_TRAINING,
            ),
            Figure(
                name="entropy",
                title="Entropy",
                caption="Mean over the trained tokens of each step, in nats.",
                sources=("trainings",),
                draw=curve("step", "entropy", "step", "entropy (nats)"),
                empty=NO_TRAINING,
            ),
            Figure(
                name="length_cv",
                title="Spread of lengths within a group",
                caption="Coefficient of variation of completion length within a group, mean over the step's groups.",
                sources=("trainings",),
                draw=curve("step", "length_cv_within", "step", "length CV"),
                empty=NO_TRAINING,
            ),
        ),
    ),
    Section(
        id="diversity",
        title="Diversity",
        figures=(
            Figure(
                name="diversity",
                title="Diversity, compared",
                caption="Mean pairwise cosine distance of a problem's traces.",
                sources=("diversity",),
            ),
        ),
    ),
    Section(
        id="passk",
        title="pass@k",
        figures=(
            Figure(
                name="passk",
                title="pass@k",
                caption="Unbiased estimates; null where there are fewer than k rollouts of a problem.",
                sources=("passk",),
            ),
        ),
    ),
    Section(
        id="tokens",
        title="Token efficiency",
        figures=(
            Figure(
                name="tokens",
                title="Tokens of paired rollouts",
                caption="Completion tokens, by who was correct.",
                sources=("tokens",),
            ),
        ),
    ),
    Section(
        id="hard",
        title="Hard problems",
        figures=(
            Figure(
                name="hard",
                title="Who solves what",
                caption="Held-out problems by the policies that solved them at least once.",
                sources=("hard",),
            ),
        ),
    ),
    Section(
        id="spending",
        title="Spending",
        figures=(
            Figure(
                name="spending",
                title="Rollouts and tokens",
                caption="What was sampled for each purpose. Rollouts that two purposes share were paid for once.",
                sources=("screenings", "evaluations", "final", "trainings"),
            ),
        ),
    ),
    Section(
        id="audit",
        title="Audit",
        figures=(
            Figure(
                name="audit",
                title="Findings about the design",
                caption="What could make a comparison above mean less than it seems.",
                sources=("audit",),
                empty="no finding: every design check passed.",
            ),
        ),
    ),
)
FIGURES = {figure.name: figure for section in SECTIONS for figure in section.figures}
