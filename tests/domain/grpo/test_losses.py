import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import LOSSES, Tokens, clip_cov, covariances, divisor, k3, kl_cov, summed
from tests.domain.grpo.test_learner_config import CONFIG as LEARNER

CONFIG = LearnerConfig(
    steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1, max_tokens=100
)


def test_divisors() -> None:
    found = {n: divisor(loss, CONFIG, tokens=50, rollouts=4) for n, loss in LOSSES.items()}
    by_tokens = dict.fromkeys(("dapo", "cispo", "clip_cov", "kl_cov"), 50)
    by_rollouts = dict.fromkeys(("rloo", "grpo", "gspo", "sapo"), 4)
    assert found == {"importance_sampling": 1, "ppo": 1, "tis": 1, "dr_grpo": 400} | by_tokens | by_rollouts


def test_k3_is_the_divergence_on_average() -> None:
    """Over all tokens of the policy, weighted by it: sum p log(p / q)."""
    p, q = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.4, 0.4, 0.2])
    assert (p * k3(p.log(), q.log())).sum().item() == pytest.approx((p * (p / q).log()).sum().item(), abs=1e-6)


Reference = Callable[[list[float], list[float], list[float], float], float]


def by_token(term: Callable[[float, float, float], float]) -> Reference:
    return lambda logprobs, behaviour, _, a: sum(term(x, b, a) for x, b in zip(logprobs, behaviour, strict=True))


def weighted(cap: float) -> Reference:
    """The weight is that of where the gradient is taken, `at`, and does not move with the log-prob."""
    return lambda logprobs, behaviour, at, a: sum(
        -min(math.exp(y - b), cap) * a * x for x, b, y in zip(logprobs, behaviour, at, strict=True)
    )


def surrogate(ratio: float, a: float) -> float:
    return -min(ratio * a, min(max(ratio, 0.8), 1.2) * a)


def token_clipped(x: float, b: float, a: float) -> float:
    return surrogate(math.exp(min(x - b, 10)), a)


def soft_gate(x: float, b: float, a: float) -> float:
    tau = 1.0 if a > 0 else 1.05
    return -4 / tau / (1 + math.exp(-tau * (math.exp(min(x - b, 10)) - 1))) * a


def sequence(logprobs: list[float], behaviour: list[float], _: list[float], a: float) -> float:
    log_s = sum(x - b for x, b in zip(logprobs, behaviour, strict=True)) / len(logprobs)
    return surrogate(math.exp(min(log_s, 10)), a)


#: A rollout's share of the loss, in plain floats.
REFERENCES: dict[str, Reference] = {
    "importance_sampling": by_token(lambda x, b, a: -math.exp(min(x - b, 10)) * a),
    "ppo": by_token(token_clipped),
    "dapo": by_token(token_clipped),
    "dr_grpo": by_token(token_clipped),
    "grpo": lambda x, b, at, a: by_token(token_clipped)(x, b, at, a) / len(x),
    "gspo": sequence,
    "rloo": by_token(lambda x, b, a: -x * a),
    "cispo": weighted(1.2),
    "tis": weighted(2.0),
    "sapo": lambda x, b, at, a: by_token(soft_gate)(x, b, at, a) / len(x),
    "clip_cov": by_token(token_clipped),
    "kl_cov": by_token(lambda x, b, a: -math.exp(min(x - b, 10)) * a),
}


def reference_loss(name: str, kl_weight: float, batch: list, logprobs: list[list[float]]) -> float:
    """The whole batch's, token by token; `mean_of_means` holds KL inside the mean over a rollout's tokens."""
    assert name in REFERENCES, f"REFERENCES lacks {name}: write a rollout's share of this loss in plain floats there"
    total = 0.0
    for (at, behaviour, reference, a), x in zip(batch, logprobs, strict=True):
        total += REFERENCES[name](x, behaviour, at, a)
        kl = sum(math.exp(min(r - y, 10)) - min(r - y, 10) - 1 for r, y in zip(reference, x, strict=True))
        total += kl_weight * kl / (len(x) if LOSSES[name].reduction == "mean_of_means" else 1)
    return total


numbers = st.floats(-6, -0.01)
token = st.tuples(numbers, numbers, numbers)
batches = st.lists(
    st.tuples(st.lists(token, min_size=1, max_size=5), st.sampled_from([-1.5, -0.3, 0.4, 1.0])), min_size=1, max_size=4
)


@pytest.mark.parametrize("name", sorted(LOSSES))
@given(drawn=batches, kl_weight=st.sampled_from([0.0, 0.1]))
def test_gradients_are_those_of_plain_floats(name: str, drawn: list, kl_weight: float) -> None:
    """Central differences of the formulas written out rollout by rollout, in float64."""
    batch = [(*map(list, zip(*tokens, strict=True)), a) for tokens, a in drawn]
    near_a_corner = [
        abs(r - edge) < 1e-3
        for x, b, _, _ in batch
        for r in [*(math.exp(y - c) for y, c in zip(x, b, strict=True)), math.exp((sum(x) - sum(b)) / len(x))]
        for edge in (0.8, 1.2)
    ]
    if any(near_a_corner):
        return
    flat = torch.tensor([y for x, *_ in batch for y in x], dtype=torch.float64, requires_grad=True)
    behaviour = torch.tensor([y for _, b, *_ in batch for y in b], dtype=torch.float64)
    reference = torch.tensor([y for _, _, r, _ in batch for y in r], dtype=torch.float64)
    lengths = torch.tensor([len(x) for x, *_ in batch])
    advantages = torch.tensor([a for *_, a in batch], dtype=torch.float64).repeat_interleave(lengths)
    rollouts = torch.arange(len(batch)).repeat_interleave(lengths)
    config = replace(CONFIG, kl_weight=kl_weight)
    t = Tokens(flat, behaviour, advantages, rollouts)
    loss = summed(LOSSES[name], t, reference if kl_weight else None, config)
    loss.backward()
    plain = [x for x, *_ in batch]
    assert loss.item() == pytest.approx(reference_loss(name, kl_weight, batch, plain), rel=1e-9, abs=1e-9)
    assert flat.grad is not None
    slopes, h = iter(flat.grad.tolist()), 1e-6
    for i, x in enumerate(plain):
        for j in range(len(x)):
            up, down = ([*map(list, plain)] for _ in range(2))
            up[i][j] += h
            down[i][j] -= h
            rise = reference_loss(name, kl_weight, batch, up) - reference_loss(name, kl_weight, batch, down)
            assert next(slopes) == pytest.approx(rise / (2 * h), rel=1e-6, abs=1e-6)


# What stands beside clipping, by hand: a soft gate, weights of tokens, a rewarded entropy.


def test_weighed_tokens_by_hand() -> None:
    """The first token has no term, the second is held to its behaviour by 3 |log-ratio|, the third is as it is."""
    at = torch.tensor([0.1, 0.1, 0.1], requires_grad=True)
    weights = torch.tensor([[0.0, 1.0, 1.0], [0.0, 3.0, 0.0]])
    t = Tokens(at, torch.zeros(3), torch.ones(3), torch.zeros(3), weights)
    summed(LOSSES["kl_cov"], t, None, CONFIG).backward()
    ratio = math.exp(0.1)
    assert at.grad is not None and at.grad.tolist() == pytest.approx([0.0, 3 - ratio, -ratio])


#: Log-probs -1 -1 -3 -3 and advantages 2 -2 2 -2: means -2 and 0, covariances 2 -2 -2 2.
LOGPROBS, COVARIANCE_ADVANTAGES = np.array([-1.0, -1.0, -3.0, -3.0]), np.array([2.0, -2.0, 2.0, -2.0])
tokens = st.lists(st.tuples(st.floats(-8, 0), st.sampled_from([-1.5, 0.5, 2.0])), min_size=2, max_size=60)


def test_by_hand() -> None:
    assert covariances(LOGPROBS, COVARIANCE_ADVANTAGES).tolist() == [2.0, -2.0, -2.0, 2.0]
    half = replace(LEARNER, cov_share=0.5, cov_kl=0.7)
    clipped = clip_cov(LOGPROBS, COVARIANCE_ADVANTAGES, half, (0,))
    assert clipped.term_T.tolist() == [0.0, 1.0, 1.0, 0.0] and not clipped.kl_T.any()
    held = kl_cov(LOGPROBS, COVARIANCE_ADVANTAGES, half, (0,))
    assert np.allclose(held.kl_T, [0.7, 0.0, 0.0, 0.7]) and held.term_T.all()


@given(tokens, st.integers(0, 99), st.sampled_from([1e-4, 0.1, 0.5]))
def test_shares_and_draws(drawn: list[tuple[float, float]], key: int, share: float) -> None:
    """At most the share, at least one; the same draw for the same key; KL on the largest alone."""
    logprobs, advantages = (np.array(values) for values in zip(*drawn, strict=True))
    config = replace(LEARNER, cov_share=share, cov_low=0.0)
    found, most = covariances(logprobs, advantages), max(1, int(share * len(drawn)))
    clipped = clip_cov(logprobs, advantages, config, (key,)).term_T == 0
    assert np.array_equal(clipped, clip_cov(logprobs, advantages, config, (key,)).term_T == 0)
    eligible = (found > 0) & (found < config.cov_high)
    assert clipped.sum() == min(most, eligible.sum()) and eligible[clipped].all()
    held = kl_cov(logprobs, advantages, config, (key,)).kl_T > 0
    assert held.sum() == most and found[held].min() >= found[~held].max(initial=-np.inf)
