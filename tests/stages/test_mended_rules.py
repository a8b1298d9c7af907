"""A rule that was mended renames the trainings that use it, and no other; nothing of the former ones is gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from storage.artifacts.fingerprint import recorded
from storage.ledger import Ledger
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import reward
from tasks.domain.grpo.steps import PromptProblem
from tasks.domain.policies import BaseModel, Policy
from tasks.engines.learning.checkpoints import recipe_hash
from tasks.training import train_adapter
from tests.stages.test_training import DEMO, Lab, lab
from tests.stages.test_training_objectives import train

__all__ = ["lab", "train"]
LEARNER = LearnerConfig(steps=3, groups_per_step=2, group_size=4, learning_rate=1e-3, lora_rank=4, lora_alpha=4)
START = Policy(arm="panel", model=BaseModel(name="a model", sha256="c" * 64))
#: Settings that a rule of before is still the rule of, and those of which it is not.
HOLD = [
    {},
    {"tag_weight": 0.0},
    {"tag_weight": 0.25},
    *({"advantage": n} for n, o in ADVANTAGES.items() if o.version == 1),
]
MENDED = [
    {"tag_weight": 0.7},
    {"overlong_cache": 4, "max_tokens": 32},
    *({"advantage": n, "advantage_k": 2} for n, o in ADVANTAGES.items() if o.version != 1),
]


@contextmanager
def of_before() -> Iterator[None]:
    """No rule had a version of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LearnerConfig, "versions", lambda _: {})
        yield


def name_of(learner: LearnerConfig) -> str:
    recipe = {"learner": learner, "start": START, "bands": None}
    return str(train_adapter.named(recipe))


@pytest.mark.parametrize("settings", HOLD, ids=str)
def test_what_no_mend_moved_keeps_its_name(settings: Mapping[str, object]) -> None:
    learner = replace(LEARNER, **settings)  # type: ignore[arg-type]
    now = name_of(learner)
    with of_before():
        assert name_of(learner) == now


@pytest.mark.parametrize("settings", MENDED, ids=str)
def test_what_a_mend_moved_is_another_training(settings: Mapping[str, object]) -> None:
    """Neither the artifact nor the checkpoint of before is its own, and its manifest says by which rule it was made."""
    learner, problems = replace(LEARNER, **settings), [PromptProblem("p", "s")]  # type: ignore[arg-type]
    with of_before():
        before = name_of(learner)
        checkpoint = recipe_hash(DEMO, problems, learner, None, 1.0)
    assert name_of(learner) != before
    assert recipe_hash(DEMO, problems, learner, None, 1.0) != checkpoint
    told = recorded(learner)
    assert isinstance(told, dict) and told["versions"] == learner.versions()


@pytest.mark.parametrize("weight", [w / 100 for w in range(101)])
def test_a_tag_weight_is_named_where_its_sums_are_others(weight: float) -> None:
    """Of correctness, the tag and no punishment of length, added as they were."""
    outcomes = [(c, t) for c in (True, False) for t in (True, False)]
    found = [reward(correct=c, tag_valid=t, tag_weight=weight) for c, t in outcomes]
    moved = any(r.total != r.correct + r.tag + r.length for r in found)
    assert ("tag_weight" in replace(LEARNER, tag_weight=weight).versions()) == moved


def test_rollouts_of_the_former_weights_are_not_the_mended_ones(lab: Lab, train: Callable) -> None:
    """Only what the start wrote, whose weights are the same, is not sampled again."""
    with of_before():
        former = train(advantage="gdpo")
    mended = train(advantage="gdpo")
    sampled = [int(lab.store.manifest(one).provenance.notes["sampled_rollouts"]) for one in (former, mended)]
    assert former != mended and sampled == [2 * 4 * 4, 4 * 4]
    told = [str(about["adapter"]) for _, about in Ledger(lab.store.root).accounts() if about.get("adapter")]
    assert sorted(told) == sorted(map(str, (former, mended)))
