"""KL to the start: which groups it holds, and what it is measured from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.engines.learning.update import Clock
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import run
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped
from tests.engines.learning.test_updates import updater_of


@pytest.mark.parametrize("minibatches", [1, 2, 3])
def test_kl_holds_the_dead_groups_of_a_step_whatever_its_minibatches(tiny_base: Path, minibatches: int) -> None:
    groups = grouped(random_rollouts(PROBLEMS, 4, seed=1))
    one, *others = groups
    groups |= {p: [replace(r, correct=True, tag_valid=True) for r in groups[p]] for p in others}
    assert len(others) == 2
    rows = []
    for weight in (0.1, 0.0):
        updater = updater_of(tiny_base, replace(CONFIG, kl_weight=weight, minibatches=minibatches))
        updater.start_here()
        rows.append(updater.update(groups, Clock()))
    held, free = rows
    assert (held["updates"], held["trained_tokens"]) == (minibatches, held["num_tokens"])
    assert free["updates"] == 1
    assert 0 < free["trained_tokens"] <= sum(len(r.token_ids) for r in groups[one])


def test_kl_is_to_where_training_started(tiny_base: Path, tmp_path: Path) -> None:
    """Zero at the first update, whether the start is the base model or an adapter; then it grows, and weight holds it
    down. Null where the loss has none."""
    config = replace(LOOP, steps=6)
    first = run(tiny_base, tmp_path / "first", config)
    assert {row["kl_start"] for row in first.steps} == {None}
    for init in (None, first.kept_adapters[-1]):
        ends = []
        for weight in (1e-6, 10.0):
            folder = tmp_path / f"{init is None}-{weight}"
            rows = run(tiny_base, folder, replace(config, kl_weight=weight), init=init).steps
            assert rows[0]["kl_start"] == 0.0 and all(row["kl_start"] > 0 for row in rows[1:])
            ends.append(rows[-1]["kl_start"])
        assert ends[1] < 0.8 * ends[0]
