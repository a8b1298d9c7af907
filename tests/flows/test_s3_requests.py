"""What looking at a root on object storage costs in requests, counted by the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from storage.artifacts.kinds import Splits
from storage.artifacts.manifest import Provenance, Recipe
from storage.artifacts.store import Payload, Store
from storage.objects import Objects
from storage.records.notes import note_planned
from storage.records.runs import Run, all_runs, now, write_run
from storage.roots import root_folder
from tests.s3_server import ObjectStorage, object_storage

pytestmark = pytest.mark.slow

#: Objects in one answer of this server to a listing; of the real one 1,000.
PAGE = 100
PROVENANCE = Provenance(
    created="2026-01-01T00:00:00+00:00", seconds=0, code="x", python="3", packages={}, hardware="cpu", command="test"
)


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStorage]:
    with object_storage(page=PAGE) as running:
        yield running


@pytest.fixture
def s3(server: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.make_bucket(f"bucket-{tmp_path.name.replace('_', '-').lower()}"[:60])
    return monkeypatch


def address(tmp_path: Path) -> str:
    return f"s3://{f'bucket-{tmp_path.name}'.replace('_', '-').lower()[:60]}/team/root"


def machine(tmp_path: Path, name: str, s3: pytest.MonkeyPatch) -> Store:
    s3.setenv("VARBAND_CACHE", str(tmp_path / name))
    store = Store(root_folder(address(tmp_path)))
    store.prepare()
    return store


def put(store: Store, number: int) -> Splits:
    ref = Splits.of(f"{number:016x}")
    rows = pa.table({"problem_id": ["p"], "source": ["s"], "split": ["train"]}, schema=Splits.schema)
    store.write(ref, Payload(rows), Recipe(stage="made", version=1, arguments={"n": number}, inputs={}), PROVENANCE)
    return ref


def run_of(number: int, state: str = "finished") -> Run:
    values = {"profile": "demo", "request": {}, "started": now(), "heartbeat": now(), "host": "elsewhere", "pid": 1}
    return Run.model_validate({"id": f"demo-{number:08x}", "state": state, **values})


def ls(*words: str, cache: Path, root: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "cli.main", *words, "--root", root, "--json"]
    done = subprocess.run(
        command, env={**os.environ, "VARBAND_CACHE": str(cache)}, check=True, capture_output=True, timeout=120
    )
    return orjson.loads(done.stdout)


@pytest.mark.parametrize(("artifacts", "runs"), [(36, 6), pytest.param(200, 30, marks=pytest.mark.slow)])
def test_a_new_laptop_sees_a_root_with_few_requests(
    artifacts: int, runs: int, server: ObjectStorage, s3: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One for each manifest and record, and the listings; the ledger fills more than one answer to a listing."""
    stores = [machine(tmp_path, name, s3) for name in "ab"]
    for n in range(runs):
        store = stores[n % 2]
        made = [put(store, n * 1000 + i) for i in range(artifacts // runs + (n < artifacts % runs))]
        note_planned(store.root, f"demo-{n:08x}", made)
        write_run(store.root, run_of(n, "running"))
        write_run(store.root, run_of(n))
    raw = Objects(tmp_path, address(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: raw.put(f"ledger/a/b/shard-{n:020d}.parquet", b"x"), range(PAGE + 50)))
    before = len(server.requests())
    shown = ls("store", "ls", cache=tmp_path / "new", root=address(tmp_path))
    requests = server.requests()[before:]
    assert len(shown) == artifacts and all(row["study"] == "demo" for row in shown)
    listings = 10 + (3 * artifacts + 2 * runs) // PAGE
    assert len(requests) <= artifacts + 2 * runs + listings, requests
    assert not [r for r in requests if r.startswith("GET") and "data.parquet " in r]
    before += len(requests)
    assert len(ls("runs", cache=tmp_path / "other", root=address(tmp_path))) == runs
    requests = server.requests()[before:]
    assert len(requests) <= 2 * runs + listings and not [r for r in requests if "data.parquet " in r], requests
    before += len(requests)
    assert len(ls("store", "ls", cache=tmp_path / "new", root=address(tmp_path))) == artifacts
    assert len(server.requests()[before:]) <= listings, "the second time only the listing is asked for"


def test_rows_come_when_they_are_asked_for(s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = put(machine(tmp_path, "a", s3), 1)
    b = machine(tmp_path, "b", s3)
    assert b.refs() == [made] and not (b.path(made) / "data.parquet").exists()
    found = ls("store", "sql", "select split from splits", cache=tmp_path / "b", root=address(tmp_path))
    assert found == [{"split": "train"}]
    c = machine(tmp_path, "c", s3)
    assert c.refs() == [made] and c.has(made) and c.read(made).num_rows == 1, "a listing is not a reading"


def test_what_one_machine_removed_comes_back_on_none(s3: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a, b = (machine(tmp_path, name, s3) for name in "ab")
    write_run(a.root, run_of(1))
    assert [run.id for run in all_runs(b.root)] == ["demo-00000001"]
    s3.setattr("storage.mirror.UNDERWAY_SECONDS", -60.0)
    assert a._mirror is not None
    a._mirror.forget(a.root / "runs" / "demo-00000001.json")
    assert all_runs(b.root) == [] and all_runs(a.root) == []
