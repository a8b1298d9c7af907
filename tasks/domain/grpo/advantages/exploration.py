"""Objectives that reward rare answers: outcome-based exploration (Song et al. 2025, arXiv 2509.06941) and DARLING (Li
et al. 2025, arXiv 2509.02534).

Exploration adds a bonus to GRPO's advantage: A = A_task + c · m · A_exp. The weight c is the setting `bonus`; m is 0 in
an all-correct group and 1 in others. N(x, a) is the number of earlier rollouts with answer a to problem x, and b_i =
min(1, 1/√N(x, a_i)).

With `gated` (the default) only correct rollouts earn the bonus. All correct answers of a problem form one class, so
gated bonuses do not reward diversity among correct rollouts; DARLING by trace does. Without `gated`, as in the paper,
new wrong answers earn a bonus too. A rollout without an answer earns none.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from tasks.domain.grpo.advantages.baselines import standardised
from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form, is_live, minus_mean


def ucb_mean(group: Group, context: Context) -> Advantages:
    """Return the bonus b_i of each rollout minus the mean bonus of the other rollouts.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> seen = Context(gated=False, visits={"p": {"3": 4, "5": 1}})
    >>> group = Group(r, r, "p", ("7", "3", "3", "5"))
    >>> (ucb_mean(group, seen)[0] - standardised(group, seen)[0]).round(4).tolist()
    [0.0667, -0.0667, -0.0667, 0.0667]
    """
    size = len(group.rewards_G)
    return _beside(
        group, context, minus_mean(_novelty(group, context) * _earners(group, context)) * (size / (size - 1))
    )


def ucb_constant(group: Group, context: Context) -> Advantages:
    """Return b_i minus the constant b0 (`bonus_baseline`; 0.5 in the paper, 1 for easy problems). The bonus is negative
    for an answer that was given more than 1/b0² times."""
    return _beside(group, context, (_novelty(group, context) - context.bonus_baseline) * _earners(group, context))


def batch(group: Group, context: Context) -> Advantages:
    """Return minus the number of other rollouts with the same answer, divided by the group size: -(1/n) Σ_{j≠i} 1[a_i =
    a_j].

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> free = Context(gated=False)
    >>> group = Group(r, r, "p", ("7", "3", "3", "5"))
    >>> (batch(group, free)[0] - standardised(group, free)[0]).round(4).tolist()
    [0.0, -0.05, -0.05, 0.0]
    """
    counts = Counter(group.answers)
    repeated_G = np.array([counts[answer] - 1 for answer in group.answers]) / len(group.answers)
    return _beside(group, context, -repeated_G * _earners(group, context))


def _novelty(group: Group, context: Context) -> np.ndarray:
    before = context.visits.get(group.problem_id, {})
    return np.array([1 / max(1, before.get(answer or "", 0)) ** 0.5 for answer in group.answers])


def _earners(group: Group, context: Context) -> np.ndarray:
    answered_G = np.array([answer is not None for answer in group.answers], dtype=np.float64)
    return answered_G * group.correct_G if context.gated else answered_G


def _beside(group: Group, context: Context, exploring_G: np.ndarray) -> Advantages:
    live = is_live(group.rewards_G.tolist())
    task_G = standardised(group, context)[0] if live else np.zeros_like(group.rewards_G)
    bonus_G = context.bonus * exploring_G * (group.num_correct < len(group.correct_G))
    distinct = len({*group.answers} - {None})
    return task_G + bonus_G, {"distinct_answers": float(distinct), "bonus": float(np.abs(bonus_G).mean())}


#: Smallest factor of a correct rollout, as in the authors' code, for a rollout whose class is the whole group.
FLOOR = 0.1


def by_trace(group: Group, _: Context) -> Advantages:
    """DARLING by `Group.traces`: a correct rollout is weighted by the share of other rollouts with another strategy. A
    trace without a recognised strategy has the smallest factor, so that empty traces are not rewarded.

    >>> r = np.array([1.0, 1.0, 1.0, 0.0])
    >>> by_trace(Group(r, r, traces=(0, 0, 1, 2)), Context())[0].round(4).tolist()
    [0.0833, 0.0833, 0.4167, -0.5833]
    """
    return _darling(group, group.traces)


def by_answer(group: Group, _: Context) -> Advantages:
    """DARLING by answers. All correct rollouts share one class, so they weigh more when they are rare."""
    return _darling(group, group.answers)


def _darling(group: Group, classes: Sequence[Hashable]) -> Advantages:
    """Return A = r' - mean(r') (section 3.2) with r'_i = correct_i · max(Div_i, FLOOR). Div_i is the share of the n - 1
    other rollouts in another class (eq. 4 and 5), and 0 for a rollout without a class. The format reward is centred
    separately. The diagnostics `classes` and `diversity` exist only for groups with a correct rollout, because the
    traces of other groups are not classified."""
    size, counts = len(classes), Counter(classes)
    diversity_G = np.array([0.0 if one is None else (size - counts[one]) / (size - 1) for one in classes])
    weighted_G = group.correct_G * np.maximum(diversity_G, FLOOR)
    reported = {"classes": float(len(counts)), "diversity": float(diversity_G.mean())} if group.num_correct else {}
    return minus_mean(weighted_G) + centred_form(group), reported
