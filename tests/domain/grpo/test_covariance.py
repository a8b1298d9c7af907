from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.losses import clip_cov, covariances, kl_cov
from tests.domain.grpo.test_types import CONFIG

#: Log-probs -1 -1 -3 -3 and advantages 2 -2 2 -2: means -2 and 0, covariances 2 -2 -2 2.
LOGPROBS, ADVANTAGES = np.array([-1.0, -1.0, -3.0, -3.0]), np.array([2.0, -2.0, 2.0, -2.0])
tokens = st.lists(st.tuples(st.floats(-8, 0), st.sampled_from([-1.5, 0.5, 2.0])), min_size=2, max_size=60)


def test_by_hand() -> None:
    assert covariances(LOGPROBS, ADVANTAGES).tolist() == [2.0, -2.0, -2.0, 2.0]
    half = replace(CONFIG, cov_share=0.5, cov_kl=0.7)
    clipped = clip_cov(LOGPROBS, ADVANTAGES, half, (0,))
    assert clipped.term_T.tolist() == [0.0, 1.0, 1.0, 0.0] and not clipped.kl_T.any()
    held = kl_cov(LOGPROBS, ADVANTAGES, half, (0,))
    assert np.allclose(held.kl_T, [0.7, 0.0, 0.0, 0.7]) and held.term_T.all()


@given(tokens, st.integers(0, 99), st.sampled_from([1e-4, 0.1, 0.5]))
def test_shares_and_draws(drawn: list[tuple[float, float]], key: int, share: float) -> None:
    """At most the share, at least one; the same draw for the same key; KL on the largest alone."""
    logprobs, advantages = (np.array(values) for values in zip(*drawn, strict=True))
    config = replace(CONFIG, cov_share=share, cov_low=0.0)
    found, most = covariances(logprobs, advantages), max(1, int(share * len(drawn)))
    clipped = clip_cov(logprobs, advantages, config, (key,)).term_T == 0
    assert np.array_equal(clipped, clip_cov(logprobs, advantages, config, (key,)).term_T == 0)
    eligible = (found > 0) & (found < config.cov_high)
    assert clipped.sum() == min(most, eligible.sum()) and eligible[clipped].all()
    held = kl_cov(logprobs, advantages, config, (key,)).kl_T > 0
    assert held.sum() == most and found[held].min() >= found[~held].max(initial=-np.inf)
