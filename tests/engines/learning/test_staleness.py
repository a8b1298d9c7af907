"""Rollouts of the policy before the last one: what is asked of whom and when, and that stopping changes nothing."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import Parked
from tasks.domain.grpo.steps import StepPlan, TrainRollout
from tasks.engines.learning.learner import Execution
from tasks.engines.learning.update import Updater
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG, check_resumed, run, same

STALE = replace(CONFIG, staleness=1)


@dataclass
class Book:
    """Rollouts that are a function of the weights that are asked, and remembered, as a ledger does."""

    entries: dict[tuple[int, tuple[str, ...]], list[TrainRollout]] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)

    def sample(self, plan: StepPlan) -> list[TrainRollout]:
        self.plans.append(plan)
        key = (plan.step, plan.problem_ids)
        if plan.problem_ids and key not in self.entries:
            assert plan.adapter is not None and plan.adapter.folder.name == f"step-{plan.policy_step:04d}"
            weights = (plan.adapter.folder / "adapter_model.safetensors").read_bytes()
            seed = int.from_bytes(hashlib.sha256(weights).digest()[:4], "big") + plan.step
            self.entries[key] = random_rollouts(plan.problem_ids, plan.group_size, seed)
        return self.entries.get(key, [])


def test_each_step_is_asked_of_the_policy_before_the_last(tiny_base: Path, tmp_path: Path) -> None:
    """Evaluated are the policies after 0, 3 and 4 steps: once each, with the first plan that asks them."""
    book = Book()
    run(tiny_base, tmp_path, STALE, sample=book.sample)
    assert [(p.step, p.policy_step, len(p.problem_ids), p.evaluate) for p in book.plans] == [
        (1, 0, 2, True),
        (2, 0, 2, False),
        (3, 1, 2, False),
        (4, 2, 2, False),
        (5, 3, 0, True),
        (5, 4, 0, True),
    ]


def test_the_next_step_is_sampled_while_this_one_trains(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 1 does not update before step 2 is being sampled: it would wait for ever if sampling waited for it."""
    asked, book, update, met = threading.Event(), Book(), Updater.update, list[bool]()

    def sample(plan: StepPlan) -> list[TrainRollout]:
        if plan.step == 2:
            asked.set()
        return book.sample(plan)

    def waiting(self: Updater, *args: Any) -> dict[str, Any]:
        met.append(asked.wait(60))
        return update(self, *args)

    monkeypatch.setattr(Updater, "update", waiting)
    run(tiny_base, tmp_path, replace(STALE, steps=2), sample=sample)
    assert met == [True, True]


@pytest.mark.parametrize("extra_groups", [0, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "execution",
    [Execution(device="cpu"), Execution(device="cpu", async_checkpoints=True, checkpoint_every=3)],
    ids=["every step", "sparse"],
)
def test_stopped_anywhere_and_resumed_it_is_the_undisturbed_run(
    tiny_base: Path, tmp_path: Path, execution: Execution, extra_groups: int
) -> None:
    config = replace(STALE, max_extra_groups=extra_groups)
    stops = range(1, 2 * config.steps + 1)
    whole = check_resumed(tiny_base, tmp_path, config, stops, lambda: Book().sample, execution=execution)
    plain = run(tiny_base, tmp_path / "plain", replace(config, staleness=0), sample=Book().sample)
    assert not same(whole.kept_adapters[-1], plain.kept_adapters[-1])


def failing(at: int, book: Book) -> Callable[[StepPlan], list[TrainRollout]]:
    def sample(plan: StepPlan) -> list[TrainRollout]:
        if plan.step == at:
            raise Parked("the budget is spent")
        return book.sample(plan)

    return sample


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_wall_met_ahead_parks_after_the_update_that_is_paid_for(tiny_base: Path, tmp_path: Path, at: int) -> None:
    done, book = list[int](), Book()
    with pytest.raises(Parked, match="the budget is spent"):
        run(tiny_base, tmp_path / "a", STALE, sample=failing(at, book), on_step=lambda m: done.append(m.row["step"]))
    assert done == list(range(1, at))
    resumed = run(tiny_base, tmp_path / "a", STALE, sample=book.sample)
    assert same(
        resumed.kept_adapters[-1], run(tiny_base, tmp_path / "b", STALE, sample=Book().sample).kept_adapters[-1]
    )
