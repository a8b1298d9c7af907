"""Objectives for rollouts with several parts: several answers, or a draft, its critique and a refinement."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.grpo.advantages.group import Advantages, Candidate, Context, Group, centred_form

#: Number of random weightings over which VPO takes the mean; they are uniform on the simplex (Dirichlet, α = 1).
DRAWS = 100


def vpo(group: Group, _: Context) -> Advantages:
    """VPO (2026, arXiv 2605.22817): E_w max_s w · R[s] over the candidates s of a completion, with w ~ Dirichlet(1).

    All completions of a group use the same w. The result is standardised by the population standard deviation. R has
    three scores per candidate (`worths`). Different weightings may prefer different candidates, so a completion gains
    from candidates that are good in different ways. The format reward is centred separately.

    >>> one, both = (Candidate(True, 10, 0),), (Candidate(True, 10, 0), Candidate(True, 5, 1))
    >>> r = np.ones(2)
    >>> vpo(Group(r, r, candidates=(one, both)), Context())[0].round(4).tolist()
    [-1.0, 1.0]
    """
    draws = np.random.default_rng(derived_seed("vpo", group.problem_id)).dirichlet(np.ones(3), DRAWS)
    raw = [(draws @ one.T).max(axis=1).mean() if len(one) else 0.0 for one in worths(group.candidates)]
    number = float(np.mean([len(one) for one in group.candidates])) if group.candidates else 0.0
    return _scored(group, raw), {"candidates": number}


def worths(candidates_G: Sequence[Sequence[Candidate]]) -> list[np.ndarray]:
    """Return an array of candidates x 3 scores for each completion. The scores of a correct candidate are 1, how much
    shorter it is than the group's longest, and how many of the group's correct candidates use another strategy. A wrong
    candidate has scores of zero.

    >>> worths([(Candidate(True, 10, 0), Candidate(False, 4, 1)), (Candidate(True, 5, 1),)])[0].tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    right = [c for of_one in candidates_G for c in of_one if c.correct]
    longest = max([1, *(c.length for c in right)])
    ways = Counter(c.way for c in right)

    def judged(c: Candidate) -> list[float]:
        if not c.correct:
            return [0.0, 0.0, 0.0]
        other = 0.0 if c.way is None or len(right) == 1 else (len(right) - ways[c.way]) / (len(right) - 1)
        return [1.0, 1 - c.length / longest, other]

    return [np.array([judged(c) for c in of_one]).reshape(-1, 3) for of_one in candidates_G]


def _scored(group: Group, raw: Sequence[float]) -> np.ndarray:
    """Return the scores minus their mean, divided by their population standard deviation; zeros if that is zero. The
    format reward is centred separately."""
    raw_G = np.array(raw, np.float64)
    spread = raw_G.std() if len(raw_G) else 0.0
    return ((raw_G - raw_G.mean()) / spread if spread >= 1e-6 else 0.0) + centred_form(group)


def summed(group: Group, _: Context) -> Advantages:
    """Multi-RLVR, VPO's baseline: a completion's number of correct candidates, standardised. VPO's appendix takes this
    sum over the candidates; the summary of the paper takes the best candidate (`best`).

    >>> right, wrong = Candidate(True, 1), Candidate(False, 1)
    >>> r = np.array([1.0, 1.0])
    >>> summed(Group(r, r, candidates=((right, right), (right, wrong))), Context())[0].tolist()
    [1.0, -1.0]
    """
    return _scored(group, [sum(c.correct for c in one) for one in group.candidates]), {}


def best(group: Group, _: Context) -> Advantages:
    """Return 1 for a completion with any correct candidate, else 0, standardised like `summed`."""
    return _scored(group, [any(c.correct for c in one) for one in group.candidates]), {}


def refined(group: Group, _: Context) -> Advantages:
    """Weigh refinements as the training loop of AutoMathCritique does (Xi et al. 2024, arXiv 2411.16579).

    A correct refinement has weight 1 minus the share of correct ones (the paper: weight 1), and a wrong one 0. Draft
    and critique come from the same policy and have no gradient.

    >>> r = np.array([1.0, 0.0, 0.0, 0.0])
    >>> refined(Group(r, r), Context())[0].tolist()
    [0.75, 0.0, 0.0, 0.0]
    """
    share = float(group.correct_G.mean())
    return group.correct_G * (1.0 - share), {"refined_right": share}


def multi_agent(group: Group, context: Context) -> Advantages:
    """Weigh drafts and critiques as in multi-agent finetuning (Subramaniam et al. 2025, arXiv 2501.05707).

    This objective is like `refined`, but for drafts of a generator and critiques of a critic, each with its own
    adapter. A critique counts as correct if its refinement is correct. Critiques that corrected a wrong draft have half
    of the group's weight, and critiques that kept a correct draft the other half, if both occur (the paper's mixture
    with w = 1/2). The paper finetunes in rounds on the majority answer of several agents. Here there is one generator
    and one critic, and the grader decides.

    >>> r = np.array([1.0, 1.0, 1.0, 0.0])
    >>> multi_agent(Group(r, r, of_right_drafts=(True, False, False, False)), Context())[0].tolist()
    [0.375, 0.1875, 0.1875, 0.0]
    """
    right_G, (advantages_G, refined_right) = group.correct_G, refined(group, context)
    if not group.of_right_drafts:
        return advantages_G, {"draft_right": float(right_G.mean())}
    drafts_G = np.array(group.of_right_drafts, dtype=np.float64)
    kept_G, mended_G = right_G * drafts_G, right_G * (1.0 - drafts_G)
    if kept_G.any() and mended_G.any():
        advantages_G = advantages_G * (right_G.sum() / 2) * (kept_G / kept_G.sum() + mended_G / mended_G.sum())
    return advantages_G, {**refined_right, "mended": float(mended_G.mean()), "draft_right": float(drafts_G.mean())}
