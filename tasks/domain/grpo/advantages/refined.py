"""Critique and refinement (AutoMathCritique, Xi et al. 2024, arXiv 2411.16579), its training in the loop."""

from __future__ import annotations

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def refined(group: Group, _: Context) -> Advantages:
    """A right refinement weighs 1 minus the share that is right, a wrong one nothing. The rollouts are refinements:
    each of the policy's own draft under a critique, which is another turn of the same policy by a scaffold of its own.

    The paper finetunes on right refinements with weight 1; minus the share, what all refinements solve teaches no more,
    and the rarest weighs most. Drafts and critiques have no gradient.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0, 0.0])
    >>> refined(Group(r, r), Context())[0].tolist()
    [0.75, 0.0, 0.0, 0.0]
    """
    return group.correct_G * (1.0 - group.correct_G.mean()), {"refined_right": float(group.correct_G.mean())}
