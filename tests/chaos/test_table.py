"""The table sees a loss, a doubling and a difference when there is one, and counts on from where it was."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.spending import Charge, Journal
from tasks.rollouts import account_of
from tests.chaos import study
from tests.chaos.results import RECOVERED, Calm, Tried, append, report, tried
from tests.chaos.table import _all, turns
from tests.chaos.trial import Trial
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


def lose_account(root: Path) -> None:
    shutil.rmtree(sorted(root.glob("ledger/*/*"))[0])


def lose_artifact(root: Path) -> None:
    Store(root).delete(Store(root).refs("report")[0])


def lose_charges(root: Path) -> None:
    path = next(iter(root.glob("spending/*/*.jsonl")))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


def double_shard(root: Path) -> None:
    shutil.copy(shard(root), shard(root).with_name("shard-99999999999999999999-0123456789abcdef.parquet"))


def double_charge(root: Path) -> None:
    Journal(root, study.RUN).enter([Charge(time="2026-01-01", ref="r", kind="rollouts", title="t", rollouts=1)])


def change_rows(root: Path) -> None:
    rows = pq.read_table(shard(root))
    changed = rows.column_names.index("completion")
    texts = ["<answer>9</answer>"] * rows.num_rows
    pq.write_table(rows.set_column(changed, rows.schema.field(changed), [texts]), shard(root))


def damage_artifact(root: Path) -> None:
    path = Store(root).path(Store(root).refs("toy_training")[0]) / "files" / "adapter.bin"
    path.write_bytes(b"x" + path.read_bytes()[1:])


PLANTED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a shard gone": (lose_shard, "lost: 24 rollouts"),
    "an account gone": (lose_account, "lost: account"),
    "an artifact gone": (lose_artifact, "lost: artifacts"),
    "a charge gone": (lose_charges, "lost: charges"),
    "a shard twice": (double_shard, "doubled: 24 rollouts"),
    "a charge twice": (double_charge, "doubled: charges of 1 "),
    "rows that differ": (change_rows, "differs: rollouts"),
    "an artifact that is damaged": (damage_artifact, "damaged"),
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


def test_what_failed_is_in_the_file_in_the_report_and_in_the_exit(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    def attempt(kind: str, seed: int) -> Tried:
        outcome = "lost: 3 rollouts of x/y" if seed == 1 else RECOVERED
        return Tried(kind, seed, outcome, 2.0 + seed, moment=0.25 + seed / 10, at="train")

    append(path, Calm("plain", 4.0, {"start": 0.25, "train": 0.75}))
    assert _all(turns(path, {"kill": 1}, 3, 1e18), attempt, path) == 1
    said = report(path, ["kill", "other"])
    assert "| kill | 3 | 2 | 3.0 (4.0) |" in said and "| other | 0 | 0 | – |" in said
    assert (
        "3 faults, 2 recovered; lost 1, doubled 0" in said and "kill, seed 1, in train at ?: lost: 3 rollouts" in said
    )
    assert "| train | 75 % | 3 (100 %) |" in said and "0, 0, 1, 1, 1, 0, 0, 0, 0, 0." in said


def test_what_was_mended_shows_how_it_went_since(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for seed, (outcome, commit) in enumerate(((RECOVERED, "a"), ("lost: 1", "a"), (RECOVERED, "a"), (RECOVERED, "b"))):
        append(path, Tried("kill", seed, outcome, 1.0, at="train", commit=commit))
    assert "- kill, seed 1, in train at a: lost: 1; of 1 tried at later commits 1 recovered" in report(path, ["kill"])


def test_a_later_run_goes_on_with_what_was_tried_least(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for seed in range(4):
        append(path, Tried("often", seed, RECOVERED, 1.0))
    kinds = {"often": 1, "dear": 2, "new": 1}
    assert list(turns(path, kinds, 4, 1e18))[:5] == [("dear", 0), ("new", 0), ("new", 1), ("dear", 1), ("new", 2)]
    assert len(tried(path)) == 4
    assert list(turns(path, kinds, 4, 0.0)) == []


def test_moments_are_drawn_over_the_whole_run() -> None:
    moments = [
        Trial(Path(), Left({}, {}, 0), 1.0, random.Random(f"kill -9 of the process/{seed}")).moment
        for seed in range(400)
    ]
    tenths = [sum(int(10 * m) == i for m in moments) for i in range(10)]
    assert min(tenths) >= 20 and max(tenths) <= 60
