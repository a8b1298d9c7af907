"""Kill a study on a Tinker server, the server, or both, and finish the study: nothing is lost and nothing paid twice
(extra `tinker`)."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.runs import all_runs
from tests.servers import REPO, SHRUNK, Quiet, end, free_port, serving

pytest.importorskip("tinker")
pytestmark = pytest.mark.slow
VARBAND = [sys.executable, "-c", "from cli.main import main; main()"]
SETTINGS = [word for name, value in SHRUNK.items() for word in ("--set", f"{name}={value}")]
#: A request's path and number among those of its path, and whether the kill comes before it arrives or after its answer.
POINTS = [
    ("asample", 150, "after"),
    ("forward_backward", 2, "before"),
    ("forward_backward", 1, "after"),
    ("optim_step", 2, "after"),
    ("save_weights", 1, "before"),
    ("save_weights", 2, "after"),
]
KILLED = {"client": ("client",), "server": ("server",), "both": ("client", "server")}


class Place:
    """A study, and the Tinker server that it uses through a proxy, which counts requests. at: called with a request's
    path, its number, and "before" or "after"."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.root, self.port = folder, folder / "root", free_port()
        self.processes = dict[str, subprocess.Popen[bytes]]()
        self.counts, self.killed, self.restarts = dict[str, int](), False, 0
        self.at: Callable[[str, int, str], None] = lambda *_: None

    def start(self, name: str, url: str) -> None:
        words = {
            "server": ["tinker", "serve", "demo", "--lora-alpha", "16", "--port", str(self.port)],
            "client": ["run", "demo", "--arms", "panel", *SETTINGS],
        }[name]
        engine = {"server": "transformers", "client": "tinker"}[name]
        root = self.root if name == "client" else self.folder / "server"
        service = {"TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-test", "TINKER_TELEMETRY": "0"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*VARBAND, *words, "--engine", engine, "--root", str(root)],
                env={**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", **service},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, names: tuple[str, ...], url: str) -> None:
        self.killed = True
        for name in names:
            end(self.processes[name])
        if "server" in names:
            self.start("server", url)

    def finish(self, url: str) -> None:
        """Wait for the study's end, and start it again while it was killed or pauses."""
        for _ in range(4):
            self.start("client", url)
            if (code := self.processes["client"].wait(600)) == 0:
                return
            assert code in (75, -signal.SIGKILL), (self.folder / "client.log").read_text()[-3000:]
            self.restarts += 1
            self.wait_for_server()
        pytest.fail((self.folder / "client.log").read_text()[-3000:])

    def wait_for_server(self) -> None:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/api/v1/healthz").raise_for_status()
                return
            except httpx.TransportError:
                time.sleep(0.2)
        pytest.fail((self.folder / "server.log").read_text()[-3000:])


@contextmanager
def place(folder: Path) -> Iterator[tuple[Place, str]]:
    """A place with its server, and the proxy's address."""
    made, lock, limits = Place(folder), threading.Lock(), httpx.Limits(max_connections=None)
    http = httpx.Client(timeout=100, limits=limits)

    class Proxy(Quiet):
        def do_POST(self) -> None:
            body, name = self.read(), self.path.rpartition("/")[2]
            with lock:
                made.counts[name] = number = made.counts.get(name, 0) + 1
            made.at(name, number, "before")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
            where = f"http://127.0.0.1:{made.port}{self.path}"
            try:
                found = http.request(self.command, where, content=body, headers=headers)
            except httpx.TransportError:
                return self.answer(503)
            made.at(name, number, "after")
            with suppress(BrokenPipeError, ConnectionResetError):  # the client was killed
                kind = found.headers.get("content-type", "")
                self.answer(found.status_code, found.content, {"Content-Type": kind})

        do_GET = do_POST

    with serving(Proxy) as url:
        made.start("server", url)
        try:
            made.wait_for_server()
            yield made, url
        finally:
            for process in made.processes.values():
                end(process)


@dataclass(frozen=True)
class Left:
    """What a finished study leaves: rollouts by account, names of artifacts, and the last adapter. sampled, updates:
    charged tokens of all rollouts, and of each update. checks: number of charges for log-probs of first rollouts."""

    rollouts: dict[str, pa.Table]
    artifacts: set[str]
    sampled: int
    updates: list[int]
    checks: int
    adapter: np.ndarray


def left(root: Path) -> Left:
    book, store = Ledger(root), Store(root)
    assert all(store.fresh(ref) for ref in store.refs())
    rows = {f"{one.policy}/{one.sampling}": rows for one, _ in book.accounts() if (rows := book.rows(one))}
    columns = ["problem_id", "rollout", "completion", "verdict"]
    rollouts = {
        name: found.select(columns).sort_by([(c, "ascending") for c in columns[:2]]) for name, found in rows.items()
    }
    assert [run.state for run in all_runs(root)] == ["finished"]
    paid = [
        json.loads(line) for file in sorted(root.glob("spending/*/*.jsonl")) for line in file.read_text().splitlines()
    ]
    sampled = sum(row["tokens"] for row in paid if row["rollouts"])
    updates = [row["tokens"] for row in paid if row["key"]]
    checks = sum(
        row["kind"] == "training" and not row["rollouts"] and not row["key"] and row["tokens"] > 0 for row in paid
    )
    (training,) = [ref for ref in store.refs() if ref.kind == "training"]
    weights = load_file(store.files(training) / "step-0002" / "adapter_model.safetensors")
    adapter = np.concatenate([weights[name].ravel() for name in sorted(weights)])
    return Left(rollouts, {str(ref) for ref in store.refs()}, sampled, updates, checks, adapter)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, float]:
    """What an undisturbed study leaves, and its seconds."""
    with place(tmp_path_factory.mktemp("whole") / "place") as (made, url):
        began = time.monotonic()
        made.finish(url)
        return left(made.root), time.monotonic() - began


@pytest.mark.parametrize(
    ("who", "point"),
    [*product(KILLED, [*POINTS, "any moment"])],
    ids=lambda one: one if isinstance(one, str) else "-".join(map(str, one)),
)
def test_a_killed_study_ends_as_if_it_was_not(
    tmp_path: Path, undisturbed: tuple[Left, float], who: str, point: tuple[str, int, str] | str
) -> None:
    whole, seconds = undisturbed
    with place(tmp_path / "place") as (made, url):

        def at(*here: object) -> None:
            if here == point and not made.killed:
                made.kill(KILLED[who], url)

        made.at = at
        if point == "any moment":
            delay = random.uniform(0.2, 0.9) * seconds
            timer = threading.Timer(delay, lambda: made.kill(KILLED[who], url))
            timer.start()
        made.finish(url)
        found = left(made.root)
    assert made.killed
    assert found.artifacts == whole.artifacts
    assert found.rollouts == whole.rollouts
    assert (found.sampled, found.updates) == (whole.sampled, whole.updates)
    assert whole.checks <= found.checks <= whole.checks + made.restarts
    # batches of samples differ, and with them the last bits of log-probs
    assert np.linalg.norm(found.adapter - whole.adapter) < 0.02 * np.linalg.norm(whole.adapter)
