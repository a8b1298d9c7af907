"""Damage is found, named, set aside, and made again: a shard, an artifact, a record, a line of charges."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.upkeep.verify import verify
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from storage.reading.catalog import ask
from storage.records.record import DAMAGED
from tasks.rollouts import account_of
from tests.chaos.study import GROUP, POLICY, PROBLEMS, SAMPLING, run
from tests.storage.records.test_garbage import recorded

ZSTD = bytes.fromhex("28b52ffd")  # how its frames begin


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A finished toy study with a run's record."""
    run(tmp_path)
    recorded(tmp_path)
    return tmp_path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0x40
    path.write_bytes(bytes(raw))


def flip_page(path: Path, column: str) -> None:
    """Bits of what a column's first page holds, compressed; headers and footer stay."""
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        found = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
        start = found.dictionary_page_offset if found.has_dictionary_page else found.data_page_offset
    raw = bytearray(path.read_bytes())
    packed = raw.index(ZSTD, start)
    for place in range(packed, packed + 16):
        raw[place] ^= 0x40
    path.write_bytes(bytes(raw))


def one(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a flipped bit in a shard": ("ledger/*/*/shard-*.parquet", flip, "shard"),
    "an artifact's rows": ("toy_training/*/data.parquet", flip, "artifact"),
    "a manifest": ("report/*/manifest.json", cut, "artifact"),
    "a run's record": ("runs/*.json", cut, "run"),
    "what an account is": ("ledger/*/*/about.json", cut, "account"),
    "charges": ("spending/*/*.jsonl", lambda path: path.write_bytes(b"{}}\n" + path.read_bytes()), "charges"),
}


def test_a_whole_root_is_whole(root: Path) -> None:
    damage, examined = verify(root)
    assert damage.num_rows == 0 and examined > 8
    with pytest.raises(UserError, match="nothing to verify"):
        verify(root / "nowhere")


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_named_and_set_aside(root: Path, case: str) -> None:
    pattern, damage, what = DAMAGES[case]
    path = one(root, pattern)
    damage(path)
    named = str((path.parent if what == "artifact" else path).relative_to(root))
    rows = verify(root)[0].to_pylist()
    assert [(row["what"], row["path"], row["moved_to"]) for row in rows] == [(what, named, None)]
    (moved,) = verify(root, repair=True)[0].to_pylist()
    if what == "charges":  # whose other lines count
        assert moved["moved_to"] is None and path.exists()
        return
    assert (root / moved["moved_to"]).exists() and moved["moved_to"].startswith(DAMAGED)
    assert verify(root)[0].num_rows == 0


def test_what_was_set_aside_is_sampled_and_made_again(root: Path) -> None:
    before = {str(ref): Store(root).read(ref) for ref in Store(root).refs()}
    for pattern in ("ledger/*/*/shard-*.parquet", "rollouts/*/data.parquet"):
        flip(one(root, pattern))
    verify(root, repair=True)
    run(root)
    assert {str(ref): Store(root).read(ref) for ref in Store(root).refs()} == before
    assert len(Ledger(root).keys(account_of(POLICY, SAMPLING))) == GROUP * PROBLEMS.num_rows


@pytest.mark.parametrize(
    ("view", "pattern", "column"),
    [("ledger", "ledger/*/*/shard-*.parquet", "completion"), ("rollouts", "rollouts/*/data.parquet", "problem_id")],
)
def test_a_query_names_a_file_with_a_flipped_page(root: Path, view: str, pattern: str, column: str) -> None:
    path = one(root, pattern)
    flip_page(path, column)
    name = path.name if view == "ledger" else path.parent.name
    with pytest.raises(UserError, match=name):
        ask(root, f"select count({column}) as n, count(distinct {column}) as different from {view}")
    (row,) = verify(root)[0].to_pylist()
    assert Path(row["path"]).name == name
