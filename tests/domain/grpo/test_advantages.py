"""Objectives: invariants of all, what each is by its paper, and unbiasedness by going through every outcome."""

from dataclasses import replace
from itertools import combinations, product
from math import comb, log

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.errors import UserError
from storage.estimates import band
from tasks.domain.grpo.advantages.best_of_k import DIVERGENCE
from tasks.domain.grpo.advantages.group import Candidate, Context, Group, is_live, minus_mean
from tasks.domain.grpo.advantages.registry import ADVANTAGES, group_advantages
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import CRITIC, answer_key, second_scaffold, several
from tasks.domain.scaffolds import PANEL, THINKING

#: (correct, tag valid, answer if wrong, class of its trace)
Outcome = tuple[bool, bool, int, int]
outcomes = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=16
)
kinds = st.sampled_from(sorted(ADVANTAGES))
#: Those that add up to nothing, as a mean was taken off.
BALANCED = [
    "centred",
    "standardised",
    "leave_one_out",
    "max_rl",
    "pass_at_k",
    "darling_trace",
    "darling_encoded",
    "darling_answer",
    "vpo",
    "multi_rlvr_sum",
    "multi_rlvr_max",
    "ucb_mean",
    "gdpo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
]
OF_K = ("pass_at_k", "pkpo")
BEST_ALONE = ("best_alone", "best_alone_standardised")
#: Those that tell right rollouts apart by more than their reward, and form by itself.
BONUSES = ("ucb_mean", "ucb_constant", "batch_exploration")
OTHER_THAN_REWARD = ("darling_trace", "darling_encoded", "darling_answer", "vpo", *BONUSES, "gdpo")
VISITS = {"p": {"correct": 3, "0": 9, "2": 1}}


def seen(rollouts: list[Outcome]) -> Group:
    rewards = [round(c + 0.2 * (t - 1), 12) for c, t, *_ in rollouts]
    answers = tuple("correct" if c else str(a) for c, _, a, _ in rollouts)
    correct = np.array([float(c) for c, *_ in rollouts])
    several = tuple((Candidate(c, 10 + trace, trace),) for c, *_, trace in rollouts)
    return Group(np.array(rewards), correct, "p", answers, tuple(trace for *_, trace in rollouts), several)


def formed(*rollouts: tuple[bool, bool]) -> Group:
    """Of (correct, tag valid); wrong ones answer alike, and all go one way."""
    return seen([(c, t, 0, 0) for c, t in rollouts])


def right(*correct: int) -> Group:
    return formed(*((bool(c), True) for c in correct))


def weights(group: Group, kind: str, k: int = 4, *, gated: bool = True) -> np.ndarray:
    return group_advantages(group, kind, Context(k=k, gated=gated, visits=VISITS, step=(group,)))[0]


@given(outcomes, kinds, st.booleans())
def test_a_better_rollout_never_weighs_less_and_all_are_finite(rollouts: list[Outcome], kind: str, gated: bool) -> None:
    """At the papers' bonus, whether it is gated or not."""
    group = seen(rollouts)
    advantages = weights(group, kind, gated=gated)
    assert np.isfinite(advantages).all()
    for i, j in combinations(range(len(rollouts)), 2):
        # where k attempts are right anyway a further right one is worth nothing, and form decides
        same_form = rollouts[i][1] == rollouts[j][1]
        comparable = same_form or kind not in (*OF_K, *OTHER_THAN_REWARD)
        if comparable and group.rewards_G[i] > group.rewards_G[j]:
            assert advantages[i] >= advantages[j] - 1e-12


@given(outcomes, kinds, st.booleans())
def test_the_order_of_rollouts_does_not_matter(rollouts: list[Outcome], kind: str, gated: bool) -> None:
    order = np.random.default_rng(len(rollouts)).permutation(len(rollouts))
    group, mixed = seen(rollouts), seen([rollouts[i] for i in order])
    assume(kind not in BEST_ALONE or np.sort(group.rewards_G)[-1] > np.sort(group.rewards_G)[-2])
    assert np.allclose(weights(mixed, kind, gated=gated), weights(group, kind, gated=gated)[order], atol=1e-9)


@given(outcomes, st.sampled_from(BALANCED))
def test_what_is_centred_adds_up_to_nothing(rollouts: list[Outcome], kind: str) -> None:
    assert abs(weights(seen(rollouts), kind).sum()) < 1e-9


@given(st.floats(-2, 2), st.integers(3, 16), kinds)
def test_a_dead_group_has_exactly_no_advantage(value: float, size: int, kind: str) -> None:
    """All right, all in one class; whatever the objective looks at beyond rewards is alike too."""
    alike = np.full(size, value)
    group = Group(alike, np.ones(size), "p", ("correct",) * size, (0,) * size)
    assert not weights(group, kind, k=2).any()


@given(outcomes, kinds)
def test_only_objectives_that_say_so_train_where_rewards_are_alike(rollouts: list[Outcome], kind: str) -> None:
    group = seen([(False, True, a, trace) for *_, a, trace in rollouts])
    assert ADVANTAGES[kind].trains_alike or not weights(group, kind, gated=False).any()
    assert not weights(group, kind).any(), "gated: nothing is right, so nothing earns a bonus"


@given(outcomes, kinds)
def test_a_wrong_rollout_earns_nothing_by_being_different(rollouts: list[Outcome], kind: str) -> None:
    """Every bonus is gated on correctness unless the recipe says otherwise."""
    found = weights(seen(rollouts), kind)
    assume(kind not in BEST_ALONE)
    for form in (True, False):
        wrong = [a for a, (c, t, *_) in zip(found, rollouts, strict=True) if not c and t == form]
        assert np.allclose(wrong, wrong[:1] * len(wrong))


@given(st.integers(3, 12), st.sampled_from(sorted({*ADVANTAGES} - {*BEST_ALONE, "refined", "multi_agent"})))
def test_a_group_without_a_right_answer_trains_form_alone(size: int, kind: str) -> None:
    """As centred does, but for those that divide by a spread."""
    group = formed(*((False, i > 0) for i in range(size)))
    found = weights(group, kind, k=2)
    assert found[0] < 0 < found[1] and band(0, size) == "all_zero"
    if kind in ("max_rl", "entropic", *OF_K):
        assert np.allclose(found, weights(group, "centred"))


@given(outcomes)
def test_leave_one_out_is_what_its_name_says(rollouts: list[Outcome]) -> None:
    values = seen(rollouts).rewards_G
    assume(is_live(values.tolist()))
    by_hand = [v - np.delete(values, i).mean() for i, v in enumerate(values)]
    assert np.allclose(weights(seen(rollouts), "leave_one_out"), by_hand)


@pytest.mark.parametrize("right_of_8", range(1, 8))
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_pass_at_k_training_is_the_mean_over_all_groups_of_k(right_of_8: int, k: int) -> None:
    """The definition itself: each k of 8 are a group, rewarded 1 if one is right, standardised over the groups."""
    correct = np.array([1.0] * right_of_8 + [0.0] * (8 - right_of_8))
    groups = list(combinations(range(8), k))
    rewards = np.array([correct[list(g)].max() for g in groups])
    found = weights(right(*correct.astype(int)), "pass_at_k", k)
    if not rewards.std():
        assert not found.any()
        return
    scores = (rewards - rewards.mean()) / rewards.std()
    for i in range(8):
        assert found[i] == pytest.approx(np.mean([s for s, g in zip(scores, groups, strict=True) if i in g]))


def test_pass_at_k_training_is_finite_where_all_groups_of_k_but_one_are_right() -> None:
    """Of 64 with 32 right, one group of 32 in C(64, 32) = 2e18 is all wrong: 1 minus that is 1 in floats. By the formula
    A₊ = -A₋ = C(64, 32)^-½."""
    advantages = weights(right(*([1, 0] * 32)), "pass_at_k", k=32)
    assert advantages == pytest.approx(np.zeros(64), abs=2 * comb(64, 32) ** -0.5)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (5, 3), (6, 6)])
def test_pkpo_is_unbiased_for_the_gradient_of_pass_at_k(n: int, k: int, p: float) -> None:
    """Over all 2^n outcomes of a policy that is right with probability p: Σ A · d log p(outcome) / dp is, in the mean,
    d/dp (1 - (1 - p)^k)."""
    total = 0.0
    for outcome in product([0, 1], repeat=n):
        chance = p ** sum(outcome) * (1 - p) ** (n - sum(outcome))
        score = (np.array(outcome) - p) / (p * (1 - p))
        total += chance * float(weights(right(*outcome), "pkpo", k) @ score) if any(outcome) else 0.0
        if all(outcome):
            # no gradient is taken of a dead group; what it would have added
            total += chance * float(ADVANTAGES["pkpo"].advantage(right(*outcome), Context(k=k))[0] @ score)
    assert total == pytest.approx(k * (1 - p) ** (k - 1))


def test_max_rl_weighs_the_rare_right_answer_by_what_it_is_one_of() -> None:
    assert weights(right(1, 0, 0, 0, 0), "max_rl") == pytest.approx([4, -1, -1, -1, -1])


def test_two_that_are_best_have_none() -> None:
    for kind in BEST_ALONE:
        assert not weights(right(1, 1, 0), kind).any()
    assert weights(formed((True, True), (True, False), (False, True)), "best_alone") == pytest.approx([0.2, 0, 0])


@given(st.integers(3, 16), st.integers(1, 15))
def test_the_entropic_weights_are_a_bit_from_uniform(size: int, num_right: int) -> None:
    """Where fewer than half are right: of two values w and 1, p log(p n) adds up to log 2."""
    assume(2 * num_right < size)
    found = weights(right(*([1] * num_right + [0] * (size - num_right))), "entropic")
    # A = x / mean of the others - 1 of two weights, the larger one 1: solve for the smaller
    wrong = float(found[-1])
    small = (1 + wrong) * num_right / (size - 1 - (1 + wrong) * (size - num_right - 1))
    two_values = np.array([1.0] * num_right + [small] * (size - num_right))
    p = two_values / two_values.sum()
    assert float((p * np.log(p * size)).sum()) == pytest.approx(DIVERGENCE, abs=1e-6) == pytest.approx(log(2), abs=1e-6)


def test_all_wrong_with_mixed_tags_is_all_zero_although_it_is_live() -> None:
    group = formed(*((False, t) for t in (True, False, True, True)))
    assert band(0, 4) == "all_zero" and is_live(group.rewards_G.tolist())
    assert weights(group, "centred") == pytest.approx([0.05, -0.15, 0.05, 0.05])


# Objectives that look beyond rewards, by hand.


HALF = np.array([1.0, 1.0, 0.0, 0.0])
SPREAD = 3**-0.5  # of HALF, n - 1
TASK = np.array([0.5, 0.5, -0.5, -0.5]) / SPREAD


def found(group: Group, kind: str, **context: object) -> list[float]:
    return group_advantages(group, kind, Context(**context))[0].tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "gated", "exploring"),
    [
        # b = 1/√4, 1/√4, 1, 1/√9; each minus the mean of the other three
        ("ucb_mean", False, [-1 / 9, -1 / 9, 5 / 9, -1 / 3]),
        # wrong ones have none: 1/2, 1/2, 0, 0
        ("ucb_mean", True, [1 / 3, 1 / 3, -1 / 3, -1 / 3]),
        ("ucb_constant", False, [0.0, 0.0, 0.5, -1 / 6]),
        ("ucb_constant", True, [0.0, 0.0, 0.0, 0.0]),
        ("batch_exploration", False, [-0.25, -0.25, 0.0, 0.0]),
        ("batch_exploration", True, [-0.25, -0.25, 0.0, 0.0]),
    ],
)
def test_exploration_by_hand(kind: str, gated: bool, exploring: list[float]) -> None:
    """The right answer was given 4 times before, "3" never, "5" nine times."""
    group = Group(HALF, HALF, "p", ("correct", "correct", "3", "5"))
    before = {"p": {"correct": 4, "5": 9}, "another": {"3": 100}}
    assert found(group, kind, gated=gated, visits=before) == pytest.approx(TASK + 0.2 * np.array(exploring))


# VPO and Multi-RLVR by hand, and what is read of a completion of several answers.


LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=1, lora_alpha=1)
candidate = st.builds(Candidate, st.booleans(), st.integers(1, 30), st.one_of(st.none(), st.integers(0, 3)))
completions = st.lists(st.lists(candidate, max_size=4), min_size=2, max_size=8)


def of(candidates: list[list[Candidate]]) -> Group:
    correct = np.array([float(any(c.correct for c in one)) for one in candidates])
    return Group(correct, correct, "p", candidates=candidates)


def several_answers_found(candidates: list[list[Candidate]], kind: str) -> np.ndarray:
    return group_advantages(of(candidates), kind, Context())[0]


SEVERAL = sorted(name for name, one in ADVANTAGES.items() if "candidates" in one.needs)


@given(completions, st.sampled_from(SEVERAL), st.integers(2, 5))
def test_wrong_candidates_their_order_and_their_length_say_nothing(
    candidates: list[list[Candidate]], kind: str, scale: int
) -> None:
    """Nor does the unit that lengths are in."""
    before = several_answers_found(candidates, kind)
    more = [[Candidate(False, 1, 9), *reversed(one)] for one in candidates]
    longer = [[replace(c, length=scale * c.length) for c in one] for one in candidates]
    assert np.allclose(several_answers_found(more, kind), before) and np.allclose(
        several_answers_found(longer, kind), before
    )
    assert abs(before.sum()) < 1e-9 and before.std() in (pytest.approx(0), pytest.approx(1))


def test_each_has_a_scaffold_of_its_own_and_an_arm_without_tags_is_refused() -> None:
    asked = several(PANEL, 3)
    assert asked.digest != PANEL.digest and asked.stop != PANEL.stop and "3 times" in asked.prompt("1+1")
    assert second_scaffold(LEARNER, PANEL) is None
    assert second_scaffold(replace(LEARNER, advantage="vpo", candidates=4), PANEL) == several(PANEL, 4)
    assert second_scaffold(replace(LEARNER, advantage="refined"), THINKING) == replace(CRITIC, chat=True)
    with pytest.raises(UserError, match="scaffold thinking does not have") as raised:
        second_scaffold(replace(LEARNER, advantage="vpo"), THINKING)
    assert "\n" not in str(raised.value)


# Groups in which an objective finds nothing: exactly zero, not the last digits of a sum.


@pytest.mark.parametrize("kind", [name for name, one in ADVANTAGES.items() if one.of_parts and name != "gdpo"])
def test_what_is_of_correctness_hears_it_where_totals_are_alike(kind: str) -> None:
    """Two right ones so long that they cost 1, two wrong ones of no cost: the totals are alike, and correctness is not."""
    correct, several = np.array([1.0, 1.0, 0.0, 0.0]), tuple((Candidate(i < 2, 9, i),) for i in range(4))
    group = Group(np.zeros(4), correct, "p", ("correct", "correct", "3", "4"), (0, 1, 2, 3), several)
    form = minus_mean(group.form_G)
    advantages = group_advantages(group, kind, Context(k=2))[0] - form
    assert advantages[:2].min() > advantages[2:].max()
    assert not group_advantages(group, "centred", Context())[0].any()


def test_a_wrong_answer_that_says_correct_is_not_the_right_one() -> None:
    keys = [answer_key(text, correct=False) for text in ("correct", " correct", "  correct", "incorrect")]
    assert len({*keys, answer_key("7", correct=True)}) == 5
