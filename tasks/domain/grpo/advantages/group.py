"""The input of an objective: a problem's rollouts and their context.

An objective is a function `advantage(group, context) -> (advantages_G, diagnostics)`. The advantages are float64; the
diagnostics are named numbers, of which a step reports the mean over its groups. Axes: G rollouts of one problem, N
rollouts of a step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

#: problem → key of an answer's class → number of rollouts with it in earlier steps.
Visits = Mapping[str, Mapping[str, int]]
Advantages = tuple[np.ndarray, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several answers in a completion. length: in characters. way: number of its strategy within the group."""

    correct: bool
    length: int
    way: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one problem. A field that the objective does not need is empty.

    - rewards_G, correct_G: float64; total rewards, and 1 or 0.
    - answers: the key of each answer's class, the same in every step; None for a rollout without an answer.
    - traces: the number of each trace's strategy within the group; all traces with None count as one strategy.
    - candidates: one list per rollout, if rollouts give several answers.
    - of_right_drafts: for critiques, whether the draft was correct.
    - lengths: tokens of each completion.
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
        """Return the format part of each reward (tags and length). The part is rounded, because the float 0.8 - 1 is
        not -0.2, and a part that all rollouts share must cancel."""
        return (self.rewards_G - self.correct_G).round(12)

    @property
    def num_correct(self) -> int:
        return int(self.correct_G.sum())


@dataclass(frozen=True, slots=True)
class Context:
    """The settings and the other groups that an objective may use.

    - k: number of attempts, for objectives about several attempts.
    - bonus, gated, bonus_baseline: settings of exploration.
    - visits: counts of answers in earlier steps.
    - step: all groups of the step; empty if the objective needs only the group itself.
    """

    k: int = 1
    bonus: float = 0.2
    gated: bool = True
    bonus_baseline: float = 0.5
    visits: Visits = field(default_factory=dict)
    step: Sequence[Group] = ()


Advantage = Callable[[Group, Context], Advantages]


def is_live(rewards_G: Sequence[float]) -> bool:
    """Return whether the rewards of a group differ, so that the group has a gradient. Rewards are compared by equality,
    because the variance of four times 0.1 is not exactly 0 in floats.

    >>> is_live([0.1] * 4), is_live([0.0, -0.2])
    (False, True)
    """
    return any(r != rewards_G[0] for r in rewards_G)


def minus_mean(values_G: np.ndarray) -> np.ndarray:
    """Subtract the mean. The result is exactly zero if all values are equal, although floats may round their mean.

    >>> minus_mean(np.array([0.1] * 3)).tolist()
    [0.0, 0.0, 0.0]
    """
    return values_G - values_G.mean() if is_live(values_G.tolist()) else np.zeros_like(values_G)


def centred_form(group: Group) -> np.ndarray:
    """Return the format reward minus its mean. Objectives of correctness add it to their advantages."""
    return minus_mean(group.form_G)
