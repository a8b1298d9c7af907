"""A loss, a doubling and a difference are found when there is one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.ledger import Ledger
from storage.records.spending import Charge, Journal
from tasks.rollouts import account_of
from tests.chaos import study
from tests.chaos.whole import Broken, Left, check, left


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Left]:
    study.run(root := tmp_path_factory.mktemp("finished") / "root")
    return root, left(root)


@pytest.fixture
def copy(finished: tuple[Path, Left], tmp_path: Path) -> tuple[Path, Left]:
    shutil.copytree(finished[0], tmp_path / "root")
    return tmp_path / "root", finished[1]


def shard(root: Path) -> Path:
    return Ledger(root).shards(account_of(study.POLICY, study.SAMPLING))[0]


def lose_shard(root: Path) -> None:
    shard(root).unlink()


def double_shard(root: Path) -> None:
    shutil.copy(shard(root), shard(root).with_name("shard-99999999999999999999-0123456789abcdef.parquet"))


def double_charge(root: Path) -> None:
    Journal(root, study.RUN).enter([Charge(time="2026-01-01", ref="r", kind="rollouts", title="t", rollouts=1)])


def change_rows(root: Path) -> None:
    rows = pq.read_table(shard(root))
    changed = rows.column_names.index("completion")
    texts = ["<answer>9</answer>"] * rows.num_rows
    pq.write_table(rows.set_column(changed, rows.schema.field(changed), [texts]), shard(root))


PLANTED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a shard gone": (lose_shard, "lost: 24 rollouts"),
    "a shard twice": (double_shard, "doubled: 24 rollouts"),
    "a charge twice": (double_charge, "doubled: charges of 1 "),
    "rows that differ": (change_rows, "differs: rollouts"),
}


def test_a_finished_run_is_whole(copy: tuple[Path, Left]) -> None:
    assert check(*copy) == 0


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_found(what: str, copy: tuple[Path, Left]) -> None:
    plant, said = PLANTED[what]
    plant(copy[0])
    with pytest.raises(Broken, match=said):
        check(*copy)


def test_a_batch_in_flight_and_a_shard_taken_away_are_allowed_for_and_no_more(copy: tuple[Path, Left]) -> None:
    double_charge(copy[0])
    assert check(*copy, in_flight=1) == 1
    lose_shard(copy[0])
    with pytest.raises(Broken, match="lost: 24"):
        check(*copy, in_flight=25, taken=23)
    assert check(*copy, in_flight=1, taken=24) == 25
