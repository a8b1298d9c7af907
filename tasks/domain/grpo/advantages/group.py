"""What an objective sees: a problem's rollouts, and what lies around them. Axis suffix: G rollouts of one problem, N of
a whole step.

An objective is a function `advantage(group, context) -> (advantages_G, diagnostics)`: float64, and numbers by name that
are kept as means over a step's groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

#: problem → key of an answer's class → how many rollouts gave it in the steps before.
Visits = Mapping[str, Mapping[str, int]]
Advantages = tuple[np.ndarray, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several answers that a completion gives. length: characters. way: its strategy among the group's."""

    correct: bool
    length: int
    way: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """rewards_G: totals, correctness and form; correct_G: 1 or 0. Both float64.

    answers: the key of each answer's class, the same in every step; None without an answer. traces: the strategy of
    each trace among the group's; None is one too. candidates: of each rollout, where it gives several answers.
    of_right_drafts: of critiques, whether the draft was right. Empty where the objective asks for none.
    lengths: tokens of each completion.
    """

    rewards_G: np.ndarray
    correct_G: np.ndarray
    problem_id: str = ""
    answers: Sequence[str | None] = ()
    traces: Sequence[int | None] = ()
    candidates: Sequence[Sequence[Candidate]] = ()
    of_right_drafts: Sequence[bool] = ()
    lengths: Sequence[int] = ()

    @property
    def form_G(self) -> np.ndarray:
        """What form alone adds to each reward: tags and length. Rounded, because 0.8 - 1 is not -0.2 in floats, and a
        form that all share would weigh."""
        return (self.rewards_G - self.correct_G).round(12)

    @property
    def num_correct(self) -> int:
        return int(self.correct_G.sum())


@dataclass(frozen=True, slots=True)
class Context:
    """k: attempts, of objectives about several. bonus, gate, baseline: of exploration. visits: before this step.
    step: every group of it; empty: the group alone."""

    k: int = 1
    bonus: float = 0.2
    gated: bool = True
    bonus_baseline: float = 0.5
    visits: Visits = field(default_factory=dict)
    step: Sequence[Group] = ()


Advantage = Callable[[Group, Context], Advantages]


def is_live(rewards_G: Sequence[float]) -> bool:
    """Whether the group has a gradient. By equality: four times 0.1 has a tiny non-zero variance in floats.

    >>> is_live([0.1] * 4), is_live([0.0, -0.2])
    (False, True)
    """
    return any(r != rewards_G[0] for r in rewards_G)


def minus_mean(values_G: np.ndarray) -> np.ndarray:
    """Exactly zero where all are alike: the mean of three times 0.1 is another float.

    >>> minus_mean(np.array([0.1] * 3)).tolist()
    [0.0, 0.0, 0.0]
    """
    return values_G - values_G.mean() if is_live(values_G.tolist()) else np.zeros_like(values_G)


def centred_form(group: Group) -> np.ndarray:
    """What form adds, minus its mean: stands beside an objective that is of correctness."""
    return minus_mean(group.form_G)
