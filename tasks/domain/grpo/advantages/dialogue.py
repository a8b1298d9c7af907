"""Objectives of a draft, a critique of it and a refinement, by one agent or two."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group


def refined(group: Group, _: Context) -> Advantages:
    """Critique and refinement (AutoMathCritique, Xi et al. 2024, arXiv 2411.16579), its training in the loop.

    A right refinement weighs 1 minus the share that is right, a wrong one nothing. The rollouts are refinements: each
    of the policy's own draft under a critique, which is another turn of the same policy by a scaffold of its own.

    The paper finetunes on right refinements with weight 1; minus the share, what all refinements solve teaches no
    more, and the rarest weighs most. Drafts and critiques have no gradient.

    >>> from numpy import array
    >>> r = array([1.0, 0.0, 0.0, 0.0])
    >>> refined(Group(r, r), Context())[0].tolist()
    [0.75, 0.0, 0.0, 0.0]
    """
    return group.correct_G * (1.0 - group.correct_G.mean()), {"refined_right": float(group.correct_G.mean())}


def multi_agent(group: Group, _: Context) -> Advantages:
    """Multi-agent finetuning (Subramaniam et al. 2025, arXiv 2501.05707), its training in the loop.

    As `refined`, of a generator's drafts and of a critic's critiques, each by an adapter of its own: a right one
    weighs 1 minus the share that is right, a wrong one nothing. A critique is right if the refinement after it is.
    Critiques that mended a wrong draft and those that kept a right one have half of the group's weight each, where
    there are both: the paper's mixture of its two sets of a critic's data, w = 1/2.

    The paper finetunes with weight 1 on what agrees with the majority of several generators and critics, in rounds;
    here there is one of each, right is what the grader says, and a round is a step.

    >>> r = np.array([1.0, 1.0, 1.0, 0.0])
    >>> multi_agent(Group(r, r), Context())[0].tolist()
    [0.25, 0.25, 0.25, 0.0]
    >>> multi_agent(Group(r, r, of_right_drafts=(True, False, False, False)), Context())[0].tolist()
    [0.375, 0.1875, 0.1875, 0.0]
    """
    right = group.correct_G
    advantages_G = right * (1.0 - right.mean())
    if not group.of_right_drafts:
        return advantages_G, {"draft_right": float(right.mean())}
    drafts = np.array(group.of_right_drafts, dtype=np.float64)
    kept, mended = right * drafts, right * (1.0 - drafts)
    if kept.any() and mended.any():
        advantages_G = advantages_G * (right.sum() / 2) * (kept / kept.sum() + mended / mended.sum())
    return advantages_G, _told(right, mended, drafts)


def _told(right: np.ndarray, mended: np.ndarray, drafts: np.ndarray) -> Mapping[str, float]:
    return {"refined_right": float(right.mean()), "mended": float(mended.mean()), "draft_right": float(drafts.mean())}
