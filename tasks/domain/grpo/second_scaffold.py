"""Scaffolds and classes that only training uses: the scaffold of a critique, the scaffold for several answers in one
completion, and classes of answers and traces that are cheap enough to compute in a training step."""

from collections.abc import Sequence
from dataclasses import replace

from storage.errors import UserError
from tasks.domain.grading.formulas import number
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.partitions import Classes, by_strategy
from tasks.domain.scaffolds import MATH, Scaffold

_CLOSING = "</answer>"
CRITIC = Scaffold(
    name="critic",
    template=(
        "A conversation between User and Critic. The user shows a problem and an attempt at it, and the Critic names"
        " the first mistake within <critique>...</critique> tags. User: {problem} Critic: "
    ),
    trace_tag="critique",
    answer_form="tag",
    stop=("</critique>",),
)


def second_scaffold(config: LearnerConfig, own: Scaffold) -> Scaffold | None:
    """Return the scaffold that this training uses in addition to the arm's own; None if it needs no other. Raise
    UserError if one completion must hold several answers and the arm's format cannot separate them.

    >>> second_scaffold(LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=0, lora_rank=1,
    ...     lora_alpha=1, advantage="refined"), CRITIC).name
    'critic'
    """
    needs = ADVANTAGES[config.advantage].needs
    if "candidates" in needs:
        return several(own, config.candidates)
    return replace(CRITIC, chat=own.chat) if "refinements" in needs else None


def several(own: Scaffold, number: int) -> Scaffold:
    if own.answer_form != "tag":
        raise UserError(
            f"learner: several answers in one completion need <answer> tags, which scaffold {own.name} does not have;"
            " use a scaffold with these tags"
        )
    extra = f"Solve it {number} times, each time another way, one solution after the other, and then write </answers>."
    template = own.template.replace("{problem}", f"{{problem}} {extra}")
    return replace(own, name=f"{own.name}_{number}", template=template, stop=("</answers>",))


def solutions(completion: str, number: int) -> list[str]:
    """Return the different solutions in a completion with several solutions.

    >>> solutions("a <answer>7</answer> b <answer>8</answer>a <answer>7</answer> c", 3)
    ['a <answer>7</answer>', 'b <answer>8</answer>']
    """
    texts = [part.strip() + _CLOSING for part in completion.split(_CLOSING)[:-1]]
    return list(dict.fromkeys(texts[:number]))


#: Key of every correct answer, because the grader treats all correct answers as equal.
RIGHT = "correct"
#: Least similarity of two traces with the same strategy, calibrated on labelled traces (tasks/engines/encoding.py).
THRESHOLD = 0.31


def answer_key(canonical: str | None, *, correct: bool, kind: str = MATH) -> str | None:
    """Return the key of an answer's class, which is the same in every step: `correct`, the value of a mathematical
    number, or else the text. Return None without an answer. kind: kind of the answer.

    >>> [answer_key(text, correct=False) for text in ("1/2", "0.5", "even", None)], answer_key("7", correct=True)
    (['1/2', '1/2', 'even', None], 'correct')
    """
    if correct:
        return RIGHT
    if canonical is not None and canonical.lstrip() == RIGHT:
        return f" {canonical}"  # a wrong answer whose text is `correct`
    found = number(canonical) if canonical is not None and kind == MATH else None
    return canonical if found is None else f"{found.value}{found.unit or ''}"


def trace_classes(traces: Sequence[str | None]) -> Classes:
    """Return the strategy of each trace of a problem; traces without a recognised strategy share the class None.

    >>> trace_classes(["3+4=7. 7*2=14.", "Ann: 3+4=7. Bo: 7*2=14.", "2*3=6. 2*4=8. 6+8=14.", "hm", None])
    [0, 0, 1, None, None]
    """
    return by_strategy(traces, THRESHOLD)
