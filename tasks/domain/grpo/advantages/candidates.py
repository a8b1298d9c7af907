"""Objectives of several answers in one completion: VPO (2026, arXiv 2605.22817) and what it is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.grpo.advantages.group import Advantages, Candidate, Context, Group, centred_form

#: Weightings that the expectation is over, uniform on the simplex: Dirichlet with α = 1.
DRAWS = 100
#: Below this spread a group has no scale.
LEAST_SPREAD = 1e-6


def vpo(group: Group, _: Context) -> Advantages:
    """raw_i = E_w max_s w · R_i[s] over candidates s of completion i, w ~ Dirichlet(1), the same draws for the whole
    group; A = (raw - mean) / std (population), 0 below a spread of 1e-6. One weighting's best candidate need not be
    another's, so a completion gains by candidates that are good in different ways.

    R is what a right candidate is worth, by three judges: 1 for being right; how much shorter it is than the group's
    longest; how many of the group's right candidates go another way. A wrong one is worth nothing to any. With one
    judge alone VPO is max over candidates. What form adds is centred beside it. Needs a scaffold that asks for several.

    >>> one, both = (Candidate(True, 10, 0),), (Candidate(True, 10, 0), Candidate(True, 5, 1))
    >>> r = np.ones(2)
    >>> vpo(Group(r, r, candidates=(one, both)), Context())[0].round(4).tolist()
    [-1.0, 1.0]
    """
    worth = worths(group.candidates)
    draws = np.random.default_rng(derived_seed("vpo", group.problem_id)).dirichlet(np.ones(3), DRAWS)
    raw_G = np.array([(draws @ one.T).max(axis=1).mean() if len(one) else 0.0 for one in worth])
    return scored(raw_G, len(group.rewards_G)) + centred_form(group), {
        "candidates": float(np.mean([len(one) for one in group.candidates])) if group.candidates else 0.0
    }


def worths(candidates_G: Sequence[Sequence[Candidate]]) -> list[np.ndarray]:
    """Of each completion, candidates x judges.

    >>> worths([(Candidate(True, 10, 0), Candidate(False, 4, 1)), (Candidate(True, 5, 1),)])[0].tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    right = [c for of_one in candidates_G for c in of_one if c.correct]
    longest = max((c.length for c in right), default=1)
    ways = Counter(c.way for c in right)

    def judged(c: Candidate) -> list[float]:
        if not c.correct:
            return [0.0, 0.0, 0.0]
        other = 0.0 if c.way is None or len(right) == 1 else (len(right) - ways[c.way]) / (len(right) - 1)
        return [1.0, 1 - c.length / max(longest, 1), other]

    return [np.array([judged(c) for c in of_one]).reshape(-1, 3) for of_one in candidates_G]


def scored(raw_G: np.ndarray, size: int) -> np.ndarray:
    """Over the population's spread; nothing where there is none, or no candidate."""
    if not len(raw_G) or raw_G.std() < LEAST_SPREAD:
        return np.zeros(size)
    return (raw_G - raw_G.mean()) / raw_G.std()


def summed(group: Group, _: Context) -> Advantages:
    """Multi-RLVR: what VPO is compared with (arXiv 2605.22817), several answers in one completion and one reward.

    How many of a completion's candidates are right, standardised over the group by the population's spread. VPO's
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
