"""Objectives: invariants of all, what each is by its paper, and unbiasedness by going through every outcome."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, log

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.bands import band
from tasks.domain.grpo.advantages.entropic import DIVERGENCE
from tasks.domain.grpo.advantages.group import Group, is_live
from tasks.domain.grpo.advantages.registry import ADVANTAGES, OF_K, group_advantages
from tasks.domain.grpo.rewards import reward

Outcome = tuple[bool, bool]
outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=4, max_size=16)
kinds = st.sampled_from(sorted(ADVANTAGES))
#: Those that add up to nothing, as a mean was taken off.
BALANCED = ("centred", "standardised", "leave_one_out", "max_rl", "pass_at_k")


def seen(rollouts: list[Outcome], k: int = 4) -> Group:
    """Of (correct, tag valid)."""
    rewards = [reward(correct=c, tag_valid=t, tag_weight=0.2).total for c, t in rollouts]
    return Group(np.array(rewards), np.array([float(c) for c, _ in rollouts]), k)


def right(*correct: int, k: int = 2) -> Group:
    values = np.array(correct, dtype=np.float64)
    return Group(values, values, k)


@given(outcomes, kinds)
def test_a_better_rollout_never_weighs_less_and_all_are_finite(rollouts: list[Outcome], kind: str) -> None:
    group = seen(rollouts)
    advantages = group_advantages(group, kind)
    assert np.isfinite(advantages).all()
    for i, j in combinations(range(len(rollouts)), 2):
        # where k attempts are right anyway a further right one is worth nothing, and form decides
        comparable = kind not in OF_K or rollouts[i][1] == rollouts[j][1]
        if comparable and group.rewards_G[i] > group.rewards_G[j]:
            assert advantages[i] >= advantages[j] - 1e-12


@given(outcomes, kinds)
def test_the_order_of_rollouts_does_not_matter(rollouts: list[Outcome], kind: str) -> None:
    order = np.random.default_rng(len(rollouts)).permutation(len(rollouts))
    group = seen(rollouts)
    assume(kind != "best_alone" or np.sort(group.rewards_G)[-1] > np.sort(group.rewards_G)[-2])
    mixed = Group(group.rewards_G[order], group.correct_G[order], group.k)
    assert np.allclose(group_advantages(mixed, kind), group_advantages(group, kind)[order], atol=1e-9)


@given(outcomes, st.sampled_from(BALANCED))
def test_what_is_centred_adds_up_to_nothing(rollouts: list[Outcome], kind: str) -> None:
    assert abs(group_advantages(seen(rollouts), kind).sum()) < 1e-9


@given(st.floats(-2, 2), st.integers(3, 16), kinds)
def test_a_dead_group_has_exactly_no_advantage(value: float, size: int, kind: str) -> None:
    alike = np.full(size, value)
    assert not group_advantages(Group(alike, np.ones(size), 2), kind).any()


@given(st.integers(3, 12), st.sampled_from(sorted({*ADVANTAGES} - {"best_alone", "entropic"})))
def test_a_group_without_a_right_answer_trains_form_alone(size: int, kind: str) -> None:
    """As centred does, but for those that divide by a spread."""
    rollouts = [(False, i > 0) for i in range(size)]
    found = group_advantages(seen(rollouts, k=2), kind)
    assert found[0] < 0 < found[1] and band(0, size) == "all_zero"
    if kind in ("max_rl", *OF_K):
        assert np.allclose(found, group_advantages(seen(rollouts), "centred"))


@given(outcomes)
def test_leave_one_out_is_what_its_name_says(rollouts: list[Outcome]) -> None:
    values = seen(rollouts).rewards_G
    assume(is_live(values.tolist()))
    by_hand = [v - np.delete(values, i).mean() for i, v in enumerate(values)]
    assert np.allclose(group_advantages(seen(rollouts), "leave_one_out"), by_hand)


@pytest.mark.parametrize("right_of_8", range(1, 8))
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_pass_at_k_training_is_the_mean_over_all_groups_of_k(right_of_8: int, k: int) -> None:
    """The definition itself: each k of 8 are a group, rewarded 1 if one is right, standardised over the groups."""
    correct = np.array([1.0] * right_of_8 + [0.0] * (8 - right_of_8))
    groups = list(combinations(range(8), k))
    rewards = np.array([correct[list(g)].max() for g in groups])
    found = group_advantages(right(*correct.astype(int), k=k), "pass_at_k")
    if not rewards.std():
        assert not found.any()
        return
    scores = (rewards - rewards.mean()) / rewards.std()
    for i in range(8):
        assert found[i] == pytest.approx(np.mean([s for s, g in zip(scores, groups, strict=True) if i in g]))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (5, 3), (6, 6)])
def test_pkpo_is_unbiased_for_the_gradient_of_pass_at_k(n: int, k: int, p: float) -> None:
    """Over all 2^n outcomes of a policy that is right with probability p: Σ A · d log p(outcome) / dp is, in the mean,
    d/dp (1 - (1 - p)^k)."""
    total = 0.0
    for outcome in product([0, 1], repeat=n):
        chance = p ** sum(outcome) * (1 - p) ** (n - sum(outcome))
        score = (np.array(outcome) - p) / (p * (1 - p))
        total += chance * float(group_advantages(right(*outcome, k=k), "pkpo") @ score) if any(outcome) else 0.0
        if all(outcome):
            # no gradient is taken of a dead group; what it would have added
            total += chance * float(ADVANTAGES["pkpo"](right(*outcome, k=k)) @ score)
    assert total == pytest.approx(k * (1 - p) ** (k - 1))


def test_pkpo_by_hand() -> None:
    """4 rollouts, 2 right, k = 2: each right one has one right and two wrong companions, 2/3 of them wrong: 2/4 · 2/3."""
    assert group_advantages(right(1, 1, 0, 0), "pkpo") == pytest.approx([1 / 3, 1 / 3, 0, 0])


def test_max_rl_weighs_the_rare_right_answer_by_what_it_is_one_of() -> None:
    assert group_advantages(right(1, 0, 0, 0, 0), "max_rl") == pytest.approx([4, -1, -1, -1, -1])


def test_two_that_are_best_have_none() -> None:
    assert not group_advantages(right(1, 1, 0), "best_alone").any()
    assert group_advantages(seen([(True, True), (True, False), (False, True)]), "best_alone") == pytest.approx(
        [0.2, 0, 0]
    )


@given(st.integers(3, 16), st.integers(1, 15))
def test_the_entropic_weights_are_a_bit_from_uniform(size: int, num_right: int) -> None:
    """Where fewer than half are right: of two values w and 1, p log(p n) adds up to log 2."""
    assume(2 * num_right < size)
    found = group_advantages(right(*([1] * num_right + [0] * (size - num_right))), "entropic")
    # A = x / mean of the others - 1 of two weights, the larger one 1: solve for the smaller
    wrong = float(found[-1])
    small = (1 + wrong) * num_right / (size - 1 - (1 + wrong) * (size - num_right - 1))
    weights = np.array([1.0] * num_right + [small] * (size - num_right))
    p = weights / weights.sum()
    assert float((p * np.log(p * size)).sum()) == pytest.approx(DIVERGENCE, abs=1e-6) == pytest.approx(log(2), abs=1e-6)


def test_all_wrong_with_mixed_tags_is_all_zero_although_it_is_live() -> None:
    group = seen([(False, t) for t in (True, False, True, True)])
    assert band(0, 4) == "all_zero" and is_live(group.rewards_G.tolist())
    assert group_advantages(group, "centred") == pytest.approx([0.05, -0.15, 0.05, 0.05])


def test_the_advantage_of_k_of_which_all_are_drawn_is_zero_or_everything() -> None:
    """k = G: only a group with exactly one right answer rewards it for more than company."""
    assert group_advantages(right(1, 0, 0, 0, k=4), "pkpo") == pytest.approx([1, 0, 0, 0])
    assert group_advantages(right(1, 1, 0, 0, k=4), "pkpo") == pytest.approx([0, 0, 0, 0])
    assert comb(4, 4) == 1
