"""Closure beyond a constant shift of logits: nothing where there is only a shift, something where one is wider."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.domain.statistics.curves_of_k import GRID_J, Counted, beyond_shift, shifted, spread_of_difficulty

N, K = 16, 8


def counted(p_P: np.ndarray, rng: np.random.Generator) -> Counted:
    correct = rng.binomial(N, p_P)
    share = correct / N
    miss = np.prod([(N - correct - i).clip(0) / (N - i) for i in range(K)], axis=0)
    ends = np.stack([share, 1 - miss], axis=1)[None]
    return Counted(np.full((1, len(p_P)), float(N)), correct[None].astype(float), ends, False)


def test_a_spread_at_one_difficulty_is_found_and_shifted_by_hand() -> None:
    # all problems at 8 of 16: after a shift to .75, pass@2 is 1 - .25²
    q = spread_of_difficulty(np.full(50, 16.0), np.full(50, 8.0), np.full((1, 50), 1 / 50))
    assert abs(float(q[0] @ GRID_J)) < 0.01
    first, second = shifted(q, np.array([0.75]), (1, 2))
    assert (first[0], second[0]) == pytest.approx((0.75, 1 - 0.25**2), abs=0.01)


def test_a_shift_alone_closes_the_gap_and_leaves_nothing_beyond() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, 600)
    one, other = (counted(1 / (1 + np.exp(-(logits + shift))), rng) for shift in (0.0, 1.5))
    null, excess = beyond_shift(one, other, (1, K), np.arange(600), 0)
    low, high = (float(end[0]) for end in excess.interval())
    closure = abs(one.ends_SP2[0, :, 0].mean() - other.ends_SP2[0, :, 0].mean()) - abs(
        one.ends_SP2[0, :, 1].mean() - other.ends_SP2[0, :, 1].mean()
    )
    assert closure > 0.1
    assert null == pytest.approx(closure, abs=0.02)
    assert low < 0 < high
    assert null + float(excess.estimate_V[0]) == pytest.approx(closure)


def test_arms_of_the_same_adapters_close_seed_by_seed() -> None:
    """Seeds a logit apart do the same to both: of adapters of their own, the closure beyond a shift varies by more."""
    rng = np.random.default_rng(1)
    logits, shifts = rng.normal(0, 1.5, 150), np.array([-1.0, 0.0, 1.0])

    def arm(move: float) -> Counted:
        seeds = [counted(1 / (1 + np.exp(-(logits + shift + move))), rng) for shift in shifts]
        n_SP, c_SP, ends_SP2 = (
            np.concatenate([getattr(s, name) for s in seeds]) for name in ("n_SP", "c_SP", "ends_SP2")
        )
        return Counted(n_SP, c_SP, ends_SP2, True)

    one, other = arm(0.0), arm(1.0)
    own, shared = (
        beyond_shift(one, other, (1, K), np.arange(150), 0, paired=paired)[1].spread for paired in (False, True)
    )
    assert own.problems_V == shared.problems_V and own.seeds_V[0] > 3 * shared.seeds_V[0] > 0
    assert shared.seeds_df_V[0] == 2


def test_a_wider_policy_closes_beyond_a_shift() -> None:
    rng = np.random.default_rng(0)
    wide = counted(np.full(200, 0.3), rng)  # every problem within reach
    narrow = counted(np.where(np.arange(200) < 100, 1 - 1e-9, 1e-9), rng)  # right or never
    _, excess = beyond_shift(wide, narrow, (1, K), np.arange(200), 0)
    assert excess.interval()[0][0] > 0.1
    assert float(excess.p_value()[0]) < 0.001
