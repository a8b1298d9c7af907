"""Objectives that set a rollout against its group or its step: baselines and scales."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form, is_live, minus_mean


def centred(group: Group, _: Context) -> Advantages:
    """Dr. GRPO (Liu et al. 2025, arXiv 2503.20783).

    Reward minus group mean; no division by the spread, which would inflate nearly solved problems.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0, 1.0])
    >>> centred(Group(r, r), Context())[0].tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return group.rewards_G - group.rewards_G.mean(), {}


def standardised(group: Group, _: Context) -> Advantages:
    """GRPO (Shao et al. 2024, arXiv 2402.03300).

    Centred over the group's standard deviation (n - 1), as in the first GRPO.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 1.0, 0.0])
    >>> standardised(Group(r, r), Context())[0].round(4).tolist()
    [0.866, -0.866, 0.866, -0.866]
    """
    return (group.rewards_G - group.rewards_G.mean()) / group.rewards_G.std(ddof=1), {}


def leave_one_out(group: Group, _: Context) -> Advantages:
    """RLOO (Ahmadian et al. 2024, arXiv 2402.14740).

    Reward minus the mean of the others: an unbiased baseline, `G / (G - 1)` times the centred one.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0])
    >>> leave_one_out(Group(r, r), Context())[0].tolist()
    [1.0, -0.5, -0.5]
    """
    size = len(group.rewards_G)
    return (group.rewards_G - group.rewards_G.mean()) * (size / (size - 1)), {}


def max_rl(group: Group, _: Context) -> Advantages:
    """MaxRL (2026, arXiv 2602.02710).

    Correctness centred and divided by its mean, so that a hard problem's rare right answer weighs most: of one right
    in G it is G - 1. What form adds is centred beside it; a group with no right answer trains form alone.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0, 0.0])
    >>> max_rl(Group(r, r), Context())[0].tolist()
    [3.0, -1.0, -1.0, -1.0]
    """
    form = centred_form(group)
    if not group.num_correct:
        return form, {}
    share = group.correct_G.mean()
    return (group.correct_G - share) / share + form, {}


def reinforce_plus_plus(group: Group, context: Context) -> Advantages:
    """REINFORCE++ (Hu 2025, arXiv 2501.03262): advantages normalised over the whole step and not within a group.

    (r - mean_N) / std_N over all rollouts of the step. A group that is all right or all wrong is worth as much as its
    problem is easier or harder than the step's others. KL, if any, is in the loss (`kl_weight`) and not in the reward.
    The authors' code takes mean and spread over tokens, where a long rollout counts for more.

    >>> easy, hard = (Group(r, r) for r in (np.array([1.0, 1.0]), np.array([1.0, 0.0])))
    >>> reinforce_plus_plus(easy, Context(step=(easy, hard)))[0].round(4).tolist()
    [0.5774, 0.5774]
    """
    rewards_N = np.concatenate([g.rewards_G for g in context.step or (group,)])
    if not is_live(rewards_N.tolist()):
        return np.zeros_like(group.rewards_G), {}
    return (group.rewards_G - rewards_N.mean()) / rewards_N.std(), {}


def with_baseline(group: Group, context: Context) -> Advantages:
    """The group's mean is taken off, then the step's spread of what is left divides: (r - mean_G) / std_N, the form for
    several rollouts a problem. Zero where rewards are alike.

    >>> even, odd = (Group(r, r) for r in (np.array([1.0, 1.0]), np.array([1.0, 0.0])))
    >>> with_baseline(odd, Context(step=(even, odd)))[0].round(4).tolist()
    [1.4142, -1.4142]
    """
    spread = np.concatenate([minus_mean(g.rewards_G) for g in context.step or (group,)]).std()
    return minus_mean(group.rewards_G) / (spread or 1.0), {}


def gdpo(group: Group, context: Context) -> Advantages:
    """GDPO (Liu et al. 2026, arXiv 2601.05242): each reward normalised by itself.

    Σ over rewards of (r_k - mean_G) / std_G, here of correctness and of form, divided by the step's spread of such
    sums: no reward drowns another, whatever they are worth. A reward that is alike in the group adds nothing. The
    step's mean, which the paper takes off too, is zero. Others average the sums and leave the step's spread out; where
    rewards are two, that is a constant factor.

    >>> g = Group(np.array([1.0, 0.8, 0.0, -0.2]), np.array([1.0, 1.0, 0.0, 0.0]))
    >>> (gdpo(g, Context())[0].round(3) + 0.0).tolist()
    [1.414, 0.0, 0.0, -1.414]
    """
    spread = np.concatenate([_scores(g) for g in context.step or (group,)]).std()
    return _scores(group) / spread if spread else np.zeros_like(group.rewards_G), {}


def _scores(group: Group) -> np.ndarray:
    zero = np.zeros_like(group.rewards_G)
    parts = (group.correct_G, group.form_G)
    scores_G = sum(((r - r.mean()) / r.std(ddof=1) for r in parts if is_live(r.tolist())), zero)
    # scores that cancel leave last digits, whose spread is no scale
    return np.where(np.abs(scores_G) < 1e-12, 0.0, scores_G)
