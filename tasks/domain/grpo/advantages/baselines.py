"""Objectives that compare the reward of a rollout with those of its group or of its step."""

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form, is_live, minus_mean


def centred(group: Group, _: Context) -> Advantages:
    """Dr. GRPO (Liu et al. 2025, arXiv 2503.20783): reward minus group mean. The reward is not divided by the standard
    deviation, which would give nearly solved problems too much weight."""
    return group.rewards_G - group.rewards_G.mean(), {}


def standardised(group: Group, context: Context) -> Advantages:
    """GRPO (Shao et al. 2024, arXiv 2402.03300): `centred`, divided by the group's standard deviation (n - 1).

    >>> r = np.array([1.0, 0.0, 1.0, 0.0])
    >>> standardised(Group(r, r), Context())[0].round(4).tolist()
    [0.866, -0.866, 0.866, -0.866]
    """
    return centred(group, context)[0] / group.rewards_G.std(ddof=1), {}


def leave_one_out(group: Group, context: Context) -> Advantages:
    """RLOO (Ahmadian et al. 2024, arXiv 2402.14740): reward minus the mean of the others, an unbiased baseline."""
    size = len(group.rewards_G)
    return centred(group, context)[0] * (size / (size - 1)), {}


def max_rl(group: Group, _: Context) -> Advantages:
    """MaxRL (2026, arXiv 2602.02710): correctness is centred and divided by its mean, so that a single correct rollout
    of G has weight G - 1. The format reward is centred separately. A group without a correct answer therefore trains
    only the format."""
    share = group.correct_G.mean()
    return ((group.correct_G - share) / share if share else 0.0) + centred_form(group), {}


def reinforce_plus_plus(group: Group, context: Context) -> Advantages:
    """REINFORCE++ (Hu 2025, arXiv 2501.03262): (r - mean_N) / std_N over all rollouts of the step.

    A group with equal rewards has an advantage if its problem is easier or harder than the step's other problems. The
    authors' code computes mean and standard deviation over tokens, and thus gives long rollouts more weight.

    >>> easy, hard = (Group(r, r) for r in (np.array([1.0, 1.0]), np.array([1.0, 0.0])))
    >>> reinforce_plus_plus(easy, Context(step=(easy, hard)))[0].round(4).tolist()
    [0.5774, 0.5774]
    """
    rewards_N = np.concatenate([g.rewards_G for g in context.step or (group,)])
    if not is_live(rewards_N.tolist()):
        return np.zeros_like(group.rewards_G), {}
    return (group.rewards_G - rewards_N.mean()) / rewards_N.std(), {}


def with_baseline(group: Group, context: Context) -> Advantages:
    """REINFORCE++ for several rollouts per problem: r - mean_G, divided by its standard deviation over the step.

    >>> even, odd = (Group(r, r) for r in (np.array([1.0, 1.0]), np.array([1.0, 0.0])))
    >>> with_baseline(odd, Context(step=(even, odd)))[0].round(4).tolist()
    [1.4142, -1.4142]
    """
    spread = np.concatenate([minus_mean(g.rewards_G) for g in context.step or (group,)]).std()
    return minus_mean(group.rewards_G) / (spread or 1.0), {}


def gdpo(group: Group, context: Context) -> Advantages:
    """GDPO (Liu et al. 2026, arXiv 2601.05242): each reward, here correctness and format, is standardised separately,
    and the sum is divided by the step's standard deviation of such sums. The paper also subtracts the step's mean,
    which is zero here.

    >>> g = Group(np.array([1.0, 0.8, 0.0, -0.2]), np.array([1.0, 1.0, 0.0, 0.0]))
    >>> (gdpo(g, Context())[0].round(3) + 0.0).tolist()
    [1.414, 0.0, 0.0, -1.414]
    """
    spread = np.concatenate([_scores(g) for g in context.step or (group,)]).std()
    return _scores(group) / spread if spread else np.zeros_like(group.rewards_G), {}


def _scores(group: Group) -> np.ndarray:
    parts = [r for r in (group.correct_G, group.form_G) if is_live(r.tolist())]
    scores_G = sum(((r - r.mean()) / r.std(ddof=1) for r in parts), np.zeros_like(group.rewards_G))
    # scores that cancel out leave only rounding errors, and their spread must not become a scale
    return np.where(np.abs(scores_G) < 1e-12, 0.0, scores_G)
