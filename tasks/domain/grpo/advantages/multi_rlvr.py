"""Multi-RLVR: what VPO is compared with (arXiv 2605.22817), several answers in one completion and one reward."""

from __future__ import annotations

import numpy as np

from tasks.domain.grpo.advantages.group import Advantages, Context, Group, centred_form
from tasks.domain.grpo.advantages.vpo import scored


def summed(group: Group, _: Context) -> Advantages:
    """How many of a completion's candidates are right, standardised over the group by the population's spread. VPO's
    documents add the candidates up; the paper's summary takes the best (`best`). Needs a scaffold that asks for
    several.

    >>> from tasks.domain.grpo.advantages.group import Candidate
    >>> right, wrong = Candidate(True, 1), Candidate(False, 1)
    >>> r = np.array([1.0, 1.0])
    >>> summed(Group(r, r, candidates=((right, right), (right, wrong))), Context())[0].tolist()
    [1.0, -1.0]
    """
    raw_G = np.array([sum(c.correct for c in one) for one in group.candidates], np.float64)
    return scored(raw_G, len(group.rewards_G)) + centred_form(group), {}


def best(group: Group, _: Context) -> Advantages:
    """1 for a completion of which any candidate is right, standardised as `summed` is."""
    raw_G = np.array([any(c.correct for c in one) for one in group.candidates], np.float64)
    return scored(raw_G, len(group.rewards_G)) + centred_form(group), {}
