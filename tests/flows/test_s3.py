"""An artifact root on object storage: a real S3 protocol server, workers in processes, one killed half way, and what
looking at a root costs in requests, counted by the server."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner

from cli.main import varband
from storage import leases
from storage.artifacts.fingerprint import file_digest
from storage.artifacts.manifest import Provenance, Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.rows import columns
from storage.artifacts.schemas import Splits
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from storage.ledger import Account, Ledger
from storage.objects import Objects
from storage.records.runs import Run, all_runs, note_planned, now, write_run
from storage.records.spending import Charge, Journal, charges
from storage.roots import root_folder
from tasks.stage import Session, session
from tests.chaos import study as small
from tests.s3_server import ObjectStorage, object_storage
from tests.servers import free_port

pytestmark = pytest.mark.slow

REPO = Path(__file__).resolve().parents[2]


class Toy(Ref, kind="toy", schema=columns("n big")):
    """Toy."""


class ToyChild(Ref, kind="toychild", schema=columns("n big")):
    """Toy."""


#: Objects in one answer of this server to a listing; of the real one 1,000.
PAGE = 100
REF, CHILD = Toy.of("0123456789abcdef"), ToyChild.of("fedcba9876543210")
RECIPE = Recipe(stage="toy", version=1, arguments={}, inputs={})
PROVENANCE = Provenance(
    created="2026-01-01T00:00:00+00:00", seconds=0, code="x", python="3", packages={}, hardware="cpu", command="test"
)


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStorage]:
    with object_storage(page=PAGE) as running:
        yield running


@pytest.fixture
def bucket(server: ObjectStorage, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A fresh bucket; credentials and endpoint come from the environment, as in production."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    name = f"varband-{abs(hash(request.node.name)) % 10**9}-{os.getpid()}"
    server.make_bucket(name)
    return f"s3://{name}/team/root"


def machine(bucket: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store as another machine sees it: its own working copy."""
    monkeypatch.setenv("VARBAND_CACHE", str(tmp_path / name))
    store = Store(root_folder(bucket))
    store.prepare()
    return store


def forget(store: Store) -> None:
    assert store._mirror is not None
    store._mirror._heard.clear()


def write(store: Store, value: int, files: Path | None = None, ref: Ref = REF, recipe: Recipe = RECIPE) -> None:
    store.write(ref, Payload(pa.table({"n": [value]}), files), recipe, PROVENANCE)


def test_what_another_machine_made_meanwhile_is_not_made_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That an artifact is missing is believed for some seconds, but not by who holds its lease and would make it."""
    one, two = (machine(bucket, tmp_path, name, monkeypatch) for name in ("one", "two"))
    assert not one.has(REF)
    write(two, 7)
    with one.making(REF):
        assert one.fresh(REF)


def test_deleted_on_one_machine_is_gone_on_all_and_made_again_with_what_follows(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (machine(bucket, tmp_path, name, monkeypatch) for name in "ab")
    recipe = Recipe(stage="child", version=1, arguments={}, inputs={"toy": [str(REF)]})
    write(a, 1)
    write(a, 10, ref=CHILD, recipe=recipe)
    assert b.fresh(CHILD)
    a.delete(REF)
    forget(b)
    assert not b.has(REF) and not b.fresh(CHILD)
    write(b, 2)
    assert b.has(CHILD) and not b.fresh(CHILD), "what follows from a remade artifact is stale"
    write(b, 20, ref=CHILD, recipe=recipe)
    forget(a)
    assert a.fresh(CHILD) and a.read(CHILD).to_pydict() == {"n": [20]}


def test_ledger_charges_and_runs_are_shared(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (machine(bucket, tmp_path, name, monkeypatch) for name in "ab")
    account = Account.of("policy", "sampling")
    rows = pa.table({"problem_id": ["p"], "rollout": pa.array([0], pa.int32())})
    Ledger(a.root).append(account, rows, {"arm": "x"})
    shutil.rmtree(a.root / "ledger")  # a machine that is lost uploads nothing more
    assert Ledger(b.root).keys(account) == {("p", 0)} and Ledger(b.root).accounts() == [(account, {"arm": "x"})]
    Journal(a.root, "demo-1").enter([Charge(time=now(), ref="r", kind="rollouts", title="t", tokens=5)])
    assert charges(b.root)["tokens"].to_pylist() == [5]
    write_run(a.root, run_of(1, "running"))
    assert [r.id for r in all_runs(b.root)] == ["demo-00000001"]
    write_run(b.root, run_of(1, "parked"))
    assert [r.state for r in all_runs(a.root)] == ["parked"]


#: Of a file that no PUT of the server takes. VARBAND_LARGE_MIB: for a figure with a larger one.
MEBIBYTES = int(os.environ.get("VARBAND_LARGE_MIB", "160"))
CARRIER = """
import re, sys
from pathlib import Path
import pyarrow as pa
from storage.artifacts.fingerprint import file_digest
from storage.roots import root_folder
from tests.flows.test_s3 import REF, Store, write
store = Store(root_folder("s3://large/root"))
store.prepare()
# ru_maxrss of a new process is that of the one that started it
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
write(store, 1, Path(sys.argv[2])) if sys.argv[1] == "put" else store.check(REF)
print(before, peak(), file_digest(store.files(REF) / "adapter.bin"))
"""


def test_what_a_larger_put_than_the_server_takes_goes_up_in_parts_and_comes_back_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own, whose peak shows that no file was held whole."""
    (made := tmp_path / "made").mkdir()
    with (made / "adapter.bin").open("wb") as file:
        for i in range(MEBIBYTES):
            file.write(bytes([i % 251]) * 1024 * 1024)
    with object_storage(most=16 << 20) as small:
        for name, value in small.environment.items():
            monkeypatch.setenv(name, value)
        small.make_bucket("large")
        peaks = {}
        for name, does in (("a", "put"), ("b", "get")):
            environment = {**os.environ, "VARBAND_CACHE": str(tmp_path / name)}
            done = subprocess.run(
                [sys.executable, "-c", CARRIER, does, str(made)],
                env=environment,
                cwd=REPO,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            before, peak, digest = done.stdout.split()
            peaks[does] = (int(peak) - int(before)) / 1024
        sizes = [int(line.split()[-1]) for line in small.requests() if line.startswith("PUT")]
    print(f"{MEBIBYTES} MiB: MiB of memory at the peak more than before: {peaks}")
    assert digest == file_digest(made / "adapter.bin") and max(sizes) <= 16 << 20
    assert max(peaks.values()) < 100, peaks


@pytest.mark.parametrize(
    ("command", "fault"), [("store ls", "away"), ("runs", "no bucket"), ("plan demo", "no credentials")]
)
def test_storage_that_does_not_serve_is_one_sentence(
    command: str, fault: str, server: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}"} if fault == "away" else {}
    settings = {**server.environment, **away, "VARBAND_CACHE": str(tmp_path), "VARBAND_STORAGE_PATIENCE": "0.1"}
    for name, value in (settings | {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    if fault == "no credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = CliRunner().invoke(varband, [*shlex.split(command), "--root", "s3://misspelt/team"])
    said = {"away": "did not answer for", "no bucket": "there is no bucket 'misspelt'"}.get(fault, "no credentials")
    assert isinstance(done.exception, UserError) and said in str(done.exception), done.output
    assert done.exception.exit_code == (75 if fault == "away" else 2) and not done.stdout


def test_dashboards_of_storage_that_does_not_answer_are_one_sentence(tmp_path: Path) -> None:
    away = {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    settings = away | {
        "VARBAND_ROOT": "s3://misspelt/team",
        "VARBAND_CACHE": str(tmp_path),
        "VARBAND_STORAGE_PATIENCE": "0.1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "varband", "serve", f"--port={free_port()}", "--root", "s3://misspelt/team"],
        env=os.environ | settings,
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 75 and done.stderr.startswith("varband: ") and len(done.stderr.splitlines()) == 1, (
        done.stderr
    )


def test_two_machines_that_want_rollouts_of_one_policy_share_them(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As artifacts of their own: two studies of a sweep whose trainings are evaluated before their first step."""
    monkeypatch.setitem(leases.POLL_SECONDS, False, 0.05)
    roots = [machine(bucket, tmp_path, name, monkeypatch).root for name in "ab"]

    def sampled(root: Path, group_size: int) -> int:
        tools = small.tools_of(small.study_of(root))
        with session(Session(Store(root), tools)):
            return len(Store(root).read(small.sample_chaos(group_size=group_size)))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(sampled, roots, (6, 4))) == [72, 48]
    book = Ledger(roots[1])
    ((account, _),) = book.accounts()
    assert len(book.keys(account)) == 72 and book.duplicates(account) == 0


# Requests


def put(store: Store, number: int) -> Splits:
    ref = Splits.of(f"{number:016x}")
    rows = pa.table({"problem_id": ["p"], "source": ["s"], "split": ["train"]}, schema=Splits.schema)
    store.write(ref, Payload(rows), RECIPE, PROVENANCE)
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


def test_a_new_laptop_sees_a_root_with_few_requests(
    server: ObjectStorage, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One for each manifest and record, and the listings; the ledger fills more than one answer to a listing."""
    artifacts, runs = 36, 6
    stores = [machine(bucket, tmp_path, name, monkeypatch) for name in "ab"]
    for n in range(runs):
        store = stores[n % 2]
        made = [put(store, n * 1000 + i) for i in range(artifacts // runs)]
        note_planned(store.root, f"demo-{n:08x}", made)
        write_run(store.root, run_of(n, "running"))
        write_run(store.root, run_of(n))
    raw = Objects(tmp_path, bucket)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: raw.put(f"ledger/a/b/shard-{n:020d}.parquet", b"x"), range(PAGE + 50)))
    before = len(server.requests())
    shown = ls("store", "ls", cache=tmp_path / "new", root=bucket)
    requests = server.requests()[before:]
    assert len(shown) == artifacts and all(row["study"] == "demo" for row in shown)
    listings = 10 + (3 * artifacts + 2 * runs) // PAGE
    assert len(requests) <= artifacts + 2 * runs + listings, requests
    assert not [r for r in requests if r.startswith("GET") and "data.parquet " in r]
    before += len(requests)
    assert len(ls("runs", cache=tmp_path / "other", root=bucket)) == runs
    requests = server.requests()[before:]
    assert len(requests) <= 2 * runs + listings and not [r for r in requests if "data.parquet " in r], requests
    before += len(requests)
    assert len(ls("store", "ls", cache=tmp_path / "new", root=bucket)) == artifacts
    assert len(server.requests()[before:]) <= listings, "the second time only the listing is asked for"
