"""Scaffolds that training alone has: the critic's turn, and several answers in one completion."""

from __future__ import annotations

from dataclasses import replace

from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.types import LearnerConfig
from tasks.domain.scaffolds import Scaffold

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
    """Beside the arm's own, what this training asks by; null where the arm's own is all. Errors: UserError for an arm
    whose answers cannot be told apart where several stand in one completion.

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
            f"learner: several answers in one completion are told apart by <answer> tags, which {own.name} has not;"
            " train an arm that has them"
        )
    asked = f"Solve it {number} times, each time another way, one solution after the other, and then write </answers>."
    template = own.template.replace("{problem}", f"{{problem}} {asked}")
    return replace(own, name=f"{own.name}_{number}", template=template, stop=("</answers>",))


def solutions(completion: str, number: int) -> list[str]:
    """What a completion of several gives, solution by solution, those that stand there again left out.

    >>> solutions("a <answer>7</answer> b <answer>8</answer>a <answer>7</answer> c", 3)
    ['a <answer>7</answer>', 'b <answer>8</answer>']
    """
    texts = [part.strip() + _CLOSING for part in completion.split(_CLOSING)[:-1]]
    return list(dict.fromkeys(texts[:number]))
