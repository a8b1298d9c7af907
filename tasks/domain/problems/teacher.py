"""The teacher for pretraining the demo model: worked solutions in every scaffold's form, with mistakes.

Each step is careful or hasty. Hasty steps are often wrong, and haste grows with the level. In the panel, haste is one
voice (Cy); in a monologue, it is writing the result without its derivation. Some mistakes are noticed and corrected.
Reinforcement learning can therefore improve by a habit (be careful and check), without new knowledge.
"""

from __future__ import annotations

import random

from tasks.domain.problems.arithmetic import ArithmeticProblem, Step, apply
from tasks.domain.scaffolds import SCAFFOLDS

CAREFUL_VOICES, HASTY_VOICE = ("Ann", "Bo"), "Cy"
HASTE_OF_LEVEL = {1: 0.15, 2: 0.4, 3: 0.6, 4: 0.8, 5: 0.8}
HASTY_SLIP, CAREFUL_SLIP, MENDED = 0.45, 0.01, 0.15
#: Shares of the pretraining mix: mostly the trained arms, and enough of the controls to sample from them.
MIX = {"panel": 0.43, "thinking": 0.43, "no_panel": 0.07, "think_tags": 0.07}


def teacher_completion(problem: ArithmeticProblem, scaffold: str, rng: random.Random, *, slips: bool = True) -> str:
    """Return a completion in the form of `scaffold`; without `slips` its answer is the gold."""
    value, spoken = problem.steps[0].left, []
    for planned in problem.steps:
        step = Step(value, planned.op, planned.right)
        hasty = rng.random() < HASTE_OF_LEVEL[problem.level]
        slipped = slips and rng.random() < (HASTY_SLIP if hasty else CAREFUL_SLIP)
        value = _slip(step, rng) if slipped else step.value
        spoken.append(_say(scaffold, step, value, hasty, rng))
        if slipped and rng.random() < MENDED:
            value = step.value
            spoken.append(_mend(scaffold, step, rng))
    return SCAFFOLDS[scaffold].answer_in_form(str(value), " ".join(spoken))


def _say(scaffold: str, step: Step, value: int, hasty: bool, rng: random.Random) -> str:
    question = f"{step.left}{step.op}{step.right}"
    if scaffold == "panel":
        voice = HASTY_VOICE if hasty else rng.choice(CAREFUL_VOICES)
        return f"{voice}: {question}={value}."
    return f"{question}={value}." if hasty else f"{question}: {written_out(step)}={value}."


def _mend(scaffold: str, step: Step, rng: random.Random) -> str:
    who = f"{rng.choice(CAREFUL_VOICES)}: no, " if scaffold == "panel" else "Wait, "
    return f"{who}{step.left}{step.op}{step.right}={step.value}."


def written_out(step: Step) -> str:
    """Return the derivation of a step: split at the tens, at the last multiple, or into a smaller product.

    >>> [written_out(s) for s in (Step(17, "+", 6), Step(23, "-", 4), Step(4, "*", 6), Step(23, " mod ", 5))]
    ['20+3', '20-1', '18+6', '23-20']
    """
    left, right, value = step.left, step.right, step.value
    tens = value // 10 * 10
    match step.op:
        case "*":
            return f"{value - right}+{right}"
        case " mod ":
            return f"{left}-{left - value}"
        case "-" if tens + 10 <= left:
            return f"{tens + 10}-{tens + 10 - value}"
    return f"{tens}+{value - tens}"


def _slip(step: Step, rng: random.Random) -> int:
    """Return a typical wrong value: off by one, off by ten, or from the other operation."""
    other = apply(step.left, {"+": "-", "-": "+"}.get(step.op, "+"), step.right)
    near = (step.value - 1, step.value + 1, step.value - 10, step.value + 10, other)
    return rng.choice([c for c in (max(n, 0) for n in near) if c != step.value])
