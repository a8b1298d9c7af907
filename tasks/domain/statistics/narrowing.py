"""Does one policy's pass@k catch up because it searches more widely, or only because every gap closes as k grows?

A policy that is better by a constant logit on every problem, and no narrower, closes its gap too: pass@k cannot pass 1.
So the closure that such a policy would have is taken from the closure that is seen; the rest is width.

Axes: C classes of equal (n, c), J points of a grid of logits, B bootstrap draws, K values of k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.resampling import resample_classes
from tasks.domain.statistics.means import Means, uneven
from tasks.domain.statistics.spread import Spread

GRID_J = np.linspace(-10.0, 10.0, 61)
STEPS = 300  # of expectation-maximisation: pass@k up to the group size no longer moves in the fourth digit


DRAWS = 200  # for a standard error only


@dataclass(frozen=True, slots=True)
class Counted:
    """One policy on the common problems: rollouts, correct ones, pass@k at the smallest and at the largest k."""

    n_SP: np.ndarray
    c_SP: np.ndarray
    ends_SP2: np.ndarray
    trained: bool

    def of_seed(self, s: int) -> Counted:
        return Counted(self.n_SP[s : s + 1], self.c_SP[s : s + 1], self.ends_SP2[s : s + 1], self.trained)


def beyond_shift(
    first: Counted, second: Counted, ks: tuple[int, int], cluster_P: np.ndarray, seed: int, *, paired: bool = False
) -> tuple[float, Means]:
    """(null, excess): the closure of the gap between the smallest and the largest k that a constant shift of logits
    would bring, and the closure beyond it, 0 where the two differ by such a shift alone.

    The shift is fitted from either side and the two are averaged. The variance is that of a bootstrap over problems,
    near-duplicates drawn together, and of leaving one seed at a time to stand for its policy; paired: whether the two
    are the same adapters, of which one then stands for both.
    """
    found, at_P = np.unique(cluster_P, return_inverse=True)
    size = 1 if uneven(at_P) else len(found)
    drawn_BP = resample_classes(np.ones(len(found), np.int64), DRAWS, seed)[:, at_P]
    drawn_BP = np.concatenate([np.ones((1, len(at_P))), drawn_BP])
    drawn_BP /= drawn_BP.sum(axis=1, keepdims=True)
    null_B, excess_B = _null_and_excess(first, second, ks, drawn_BP)
    problems = float(excess_B[1:].var(ddof=1))
    added, over = 0.0, 0.0
    for pairs in _by_seed(first, second, paired):
        seeds, alone = len(pairs), [_null_and_excess(*pair, ks, drawn_BP[:1])[1][0] for pair in pairs]
        part = float(np.var(alone, ddof=1)) / seeds
        added, over = added + part, over + part**2 / (seeds - 1)
    known = np.array([size > 1 and problems > 0])
    trained = [seeds for seeds, was in ((len(p.n_SP), p.trained) for p in (first, second)) if was]
    one = [np.array([v]) for v in (problems, max(size - 1.0, 1.0), added, added**2 / over if over > 0 else 1.0)]
    return float(null_B[0]), Means(
        np.array([excess_B[0]]), Spread(*one), known, known, size, min(trained, default=0), 1.0
    )


def _by_seed(first: Counted, second: Counted, paired: bool) -> list[list[tuple[Counted, Counted]]]:
    """Of whatever has seeds, the two policies with one seed at a time in the place of all."""
    several = [one for one in (first, second) if one.trained and len(one.n_SP) > 1]
    if paired and several:
        return [[(first.of_seed(s), second.of_seed(s)) for s in range(len(first.n_SP))]]
    return [
        [(one.of_seed(s), second) if one is first else (first, one.of_seed(s)) for s in range(len(one.n_SP))]
        for one in several
    ]


def _null_and_excess(
    first: Counted, second: Counted, ks: tuple[int, int], weights_BP: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(null_B, excess_B), signed so that a closing gap is positive whichever policy is ahead."""
    a_B2, b_B2 = (weights_BP @ one.ends_SP2.mean(axis=0) for one in (first, second))
    gap_B2 = a_B2 - b_B2
    sign = 1.0 if gap_B2[0, 0] >= 0 else -1.0
    ends = []
    for one in (first, second):
        n_P, c_P = one.n_SP.ravel(), one.c_SP.ravel()
        q_BJ = spread_of_difficulty(n_P, c_P, np.tile(weights_BP, (1, len(one.n_SP))) / len(one.n_SP))
        at_first = [shifted(q_BJ, mean_B, ks) for mean_B in (a_B2[:, 0], b_B2[:, 0])]
        ends.append([a - b for a, b in zip(*at_first, strict=True)])
    null_B = sign * np.mean([smallest - largest for smallest, largest in ends], axis=0)
    return null_B, sign * (gap_B2[:, 0] - gap_B2[:, 1]) - null_B


def spread_of_difficulty(n_P: np.ndarray, c_P: np.ndarray, weights_BP: np.ndarray) -> np.ndarray:
    """(B, J) weights of the grid's logits: the nonparametric maximum likelihood of how problems' chances of a correct
    rollout are spread, under each draw's weights of the problems."""
    pairs, class_P = np.unique(np.stack([n_P, c_P]), axis=1, return_inverse=True)
    weights_BC = weights_BP @ np.eye(pairs.shape[1])[class_P.ravel()]
    p_J = 1 / (1 + np.exp(-GRID_J))
    like_CJ = np.exp(pairs[1][:, None] * np.log(p_J) + (pairs[0] - pairs[1])[:, None] * np.log1p(-p_J))
    like_CJ /= like_CJ.max(axis=1, keepdims=True)
    q_BJ = np.full((len(weights_BC), len(GRID_J)), 1 / len(GRID_J))
    for _ in range(STEPS):
        q_BJ = q_BJ * ((weights_BC / np.maximum(q_BJ @ like_CJ.T, 1e-300)) @ like_CJ)
        q_BJ /= q_BJ.sum(axis=1, keepdims=True)
    return q_BJ


def shifted(q_BJ: np.ndarray, first_B: np.ndarray, ks: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """pass@k_B at both k of this spread of difficulty once every logit moved by the constant at which its pass@k at the
    first is first_B."""
    low_B, high_B = np.full(len(q_BJ), -25.0), np.full(len(q_BJ), 25.0)
    for _ in range(40):
        middle_B = (low_B + high_B) / 2
        under_B = _passing(q_BJ, middle_B, ks[0]) < first_B
        low_B, high_B = np.where(under_B, middle_B, low_B), np.where(under_B, high_B, middle_B)
    return _passing(q_BJ, low_B, ks[0]), _passing(q_BJ, low_B, ks[1])


def _passing(q_BJ: np.ndarray, shift_B: np.ndarray, k: int) -> np.ndarray:
    fail_BJ = 1 / (1 + np.exp(GRID_J + shift_B[:, None]))
    return (q_BJ * (1 - fail_BJ**k)).sum(axis=1)
