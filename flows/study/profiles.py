"""Named studies: profiles, which are files `builtin/*.toml` like those of users, and open questions about them.

A question is a study with few changes. The name of a question is `<study>/<question>`, and `varband plan NAME` shows
its price. Artifacts that two questions share (pool, split, screening, equal trainings and rollouts) are made once.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from flows.study.files import read_study
from flows.study.objectives import compared
from flows.study.profile import Benchmark, Lesson, PassK, Profile

FOLDER = Path(__file__).parent / "builtin"


def packaged(name: str, *based_on: Profile) -> Profile:
    """Return the profile in a file of this package, under the profile's own name."""
    path, bases = FOLDER / f"{name}.toml", {base.name: base for base in based_on}
    study = read_study(path.read_text(encoding="utf-8"), path.name, bases=bases.__getitem__).study
    return replace(study, name=name, purpose=study.about or study.purpose, about="")


DEMO = packaged("demo")
SMALL = packaged("small")
QWEN_1_5B = packaged("qwen-1.5b")
PAPER = packaged("paper", QWEN_1_5B)
#: Benchmarks that any study may name.
BENCHMARKS: tuple[Benchmark, ...] = QWEN_1_5B.benchmarks
GSM8K_LESSON = QWEN_1_5B.lessons[0]
MATH_LESSON = next(lesson for lesson in PAPER.lessons if lesson.name == "math")


def questions(study: Profile) -> Iterator[Profile]:
    """Yield the built-in questions for one study."""

    def ask(name: str, purpose: str, **changes: object) -> Profile:
        question = replace(study, name=f"{study.name}/{name}", purpose=purpose, **changes)  # type: ignore[arg-type]
        return replace(question, own=question.own_used)

    yield ask(
        "matched-thinking",
        "does the thinking arm gain as much from the very same lessons, steps and groups as the panel?",
        lessons=tuple(replace(lesson, arms=("panel", "thinking", "think_tags")) for lesson in study.lessons),
    )
    yield ask("seeds", "does the result hold for a second and a third training seed?", seeds=(0, 1, 2))
    yield ask(
        "diversity-after",
        "does training narrow what one sample searches? 16 rollouts a held-out problem, before and after",
        final=replace(study.final, group_size=16),
    )
    for n in (64, 128):
        yield ask(
            f"n-{n}",
            f"does the wider search pay at scale? pass@k from {n} rollouts a held-out and a benchmark problem",
            final=replace(study.final, group_size=n),
            benchmarks=tuple(replace(benchmark, group_size=n) for benchmark in study.benchmarks),
            passk=PassK(ks=tuple(2**i for i in range(n.bit_length() - 1))),
        )
    yield ask(
        "token-matched",
        "which arm is better for equal tokens, not equal rollouts? 32 rollouts, compared by tokens per correct answer",
        final=replace(study.final, group_size=32),
        passk=PassK(ks=(1, 2, 4, 8, 16)),
    )
    yield ask(
        "controls",
        "is it the panel, or training and tags? plain prompt on the panel's model; base model with <think> tags",
        arms=("panel", "thinking", "no_panel", "think_tags"),
        own=(),  # all arms have one base model
    )
    # as many tokens as the study's own training samples if completions take six tenths of the limit
    groups = study.training.groups_per_step * study.training.group_size
    question = compared(study, token_budget=study.training.steps * groups * study.rollouts.max_tokens * 6 // 10)
    yield replace(question, own=question.own_used)
    yield ask(
        "chain",
        "the whole chain GSM8K → MATH → olympiad from the base model, for every arm that trains",
        arms=("panel", "think_tags"),
        lessons=(_sized(GSM8K_LESSON, study), _sized(MATH_LESSON, study)),
    )


def _sized(lesson: Lesson, study: Profile) -> Lesson:
    """Return the lesson with limits, steps and learning rate of the study's lesson of that name. If the study has no
    such lesson, take only the limit of completions from the study."""
    own = {known.name: known for known in study.lessons}
    cap = min(lesson.rollouts.max_tokens, study.rollouts.max_tokens)
    return own.get(lesson.name) or replace(lesson, rollouts=replace(lesson.rollouts, max_tokens=cap))


#: On problems that are hard for a weak model, so that some groups have no correct rollout.
DEMO_OBJECTIVES = compared(
    replace(
        DEMO,
        pool=replace(DEMO.pool, synthetic=30, levels=(3, 4, 5, 5), heldout_per_source=10),
        training=replace(DEMO.training, steps=15),
        hardware=replace(DEMO.hardware, arms_at_once=1),
    ),
    token_budget=36_000,
)
ALL_QUESTIONS = tuple(question for study in (QWEN_1_5B, PAPER) for question in questions(study))
#: Every study with a name.
PROFILES = {p.name: p for p in (DEMO, DEMO_OBJECTIVES, SMALL, QWEN_1_5B, PAPER, *ALL_QUESTIONS)}
