"""The input of an objective: a problem's rollouts and their context. Axis suffix: G rollouts of one problem, N of a
whole step.

An objective is a function `advantage(group, context) -> (advantages_G, diagnostics)`: float64, and named numbers that
are averaged over a step's groups.
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
    """The rollouts of one problem. rewards_G: total rewards; correct_G: 1 or 0. Both are float64. A field that the
    objective does not need is empty.

    - answers: the key of each answer's class, the same in every step; None without an answer.
    - traces: the strategy of each trace among the group's; None counts as one.
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
        """Return the format part of each reward: tags and length. It is rounded, because 0.8 - 1 is not -0.2 in floats,
        and a part shared by all rollouts must cancel."""
        return (self.rewards_G - self.correct_G).round(12)

    @property
    def num_correct(self) -> int:
        return int(self.correct_G.sum())


@dataclass(frozen=True, slots=True)
class Context:
    """The settings and the other groups that an objective may use. k: number of attempts, for objectives about several.
    bonus, gated, bonus_baseline: settings of exploration. visits: counts of answers in earlier steps. step: all groups
    of the step; empty for the group alone."""

    k: int = 1
    bonus: float = 0.2
    gated: bool = True
    bonus_baseline: float = 0.5
    visits: Visits = field(default_factory=dict)
    step: Sequence[Group] = ()


Advantage = Callable[[Group, Context], Advantages]


def is_live(rewards_G: Sequence[float]) -> bool:
    """Return whether the group has a gradient. Rewards are compared by equality, because the variance of four times 0.1
    is not exactly 0 in floats.

    >>> is_live([0.1] * 4), is_live([0.0, -0.2])
    (False, True)
    """
    return any(r != rewards_G[0] for r in rewards_G)


def minus_mean(values_G: np.ndarray) -> np.ndarray:
    """Subtract the mean; exactly zero if all values are equal, although the mean of three times 0.1 is another float.

    >>> minus_mean(np.array([0.1] * 3)).tolist()
    [0.0, 0.0, 0.0]
    """
    return values_G - values_G.mean() if is_live(values_G.tolist()) else np.zeros_like(values_G)


def centred_form(group: Group) -> np.ndarray:
    """Return the format reward minus its mean, which objectives of correctness add."""
    return minus_mean(group.form_G)
