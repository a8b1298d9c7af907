"""Shards: whoever samples them, in whatever order, the artifact that is gathered has the rows of one that was made alone."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.kinds import Rollouts
from storage.artifacts.store import Store
from storage.errors import Parked
from storage.ledger import Ledger
from tasks.rollouts import account_of
from tasks.sampling import enter_shard, open_shards, sample_rollouts, screen_adaptively
from tasks.stage import Session, Stage, Step, session
from tests.stages.test_sampling import DRAW, GROUP, POLICY, Lab, lab

__all__ = ["lab"]  # the fixture
BATCH, OF_A_SHARD = 12, 48


def planned(lab: Lab, stage: Stage[..., Rollouts], root: Path) -> tuple[Step, Session]:
    """The step of a stage in a store of its own, which has the problems of the lab's."""
    for kind in ("pool", "splits"):
        if not (root / kind).exists():
            root.mkdir(exist_ok=True)
            (root / kind).symlink_to(lab.store.root / kind)
    lab.toolbox.hardware = lab.toolbox.hardware.__class__(batch_size=BATCH)
    asked = {"pool": lab.pool, "splits": lab.splits, "policy": POLICY, "sampling": DRAW, "group_size": GROUP}
    with session(Session(Store(root), lab.toolbox, planning=True)) as planning:
        stage(**asked)
    Store(root).prepare()
    return planning.steps[0], Session(Store(root), lab.toolbox)


def whole(lab: Lab, stage: Stage[..., Rollouts], root: Path) -> pa.Table:
    step, alone = planned(lab, stage, root)
    with session(alone):
        alone.ensure(step)
    return alone.store.read(step.ref)


@pytest.mark.parametrize("stage", [sample_rollouts, screen_adaptively])
def test_gathered_rows_are_those_of_one_worker(lab: Lab, tmp_path: Path, stage: Stage[..., Rollouts]) -> None:
    expected = whole(lab, stage, tmp_path / "alone")
    step, worker = planned(lab, stage, tmp_path / "shared")
    with session(worker):
        shards = list(open_shards(step, OF_A_SHARD, set()))
        assert len(shards) > 1
        for shard in random.Random(0).sample(shards, len(shards)):
            with worker.at_work_on(step):
                enter_shard(step, OF_A_SHARD, shard)
        paid = lab.engine.sampled
        assert list(open_shards(step, OF_A_SHARD, set())) == []
        worker.ensure(step)
    assert lab.engine.sampled == paid, "gathering sampled"
    assert worker.store.read(step.ref).equals(expected)
    assert Ledger(worker.store.root).duplicates(account_of(POLICY, DRAW)) == 0


@pytest.mark.parametrize("stage", [sample_rollouts, screen_adaptively])
def test_a_worker_that_ends_half_way_leaves_its_shard_open(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Stage[..., Rollouts]
) -> None:
    """Whoever starts the run again asks for that shard and those that nobody began, whatever was decided in others."""
    step, worker = planned(lab, stage, tmp_path / "shared")
    generate, began = lab.engine.generate, lab.engine.sampled

    def ends(*given: object) -> object:
        if lab.engine.sampled - began >= BATCH:
            raise Parked("the machine is wanted elsewhere")
        return generate(*given)  # type: ignore[arg-type]

    with session(worker), worker.at_work_on(step):
        first, *others = open_shards(step, OF_A_SHARD, set())
        monkeypatch.setattr(lab.engine, "generate", ends)
        with pytest.raises(Parked):
            enter_shard(step, OF_A_SHARD, first)
        monkeypatch.setattr(lab.engine, "generate", generate)
        assert list(open_shards(step, OF_A_SHARD, set())) == [first, *others]
        enter_shard(step, OF_A_SHARD, first)
        assert list(open_shards(step, OF_A_SHARD, set())) == others
        entries = Ledger(worker.store.root).entries(account_of(POLICY, DRAW))
    assert lab.engine.sampled - began == entries.keys.num_rows, "something was paid for and is not there"
    assert Ledger(worker.store.root).duplicates(account_of(POLICY, DRAW)) == 0, "a batch was paid for twice"
