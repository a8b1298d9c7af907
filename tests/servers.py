"""Real servers for tests, on 127.0.0.1 and free ports: Postgres, a Prefect server on it, process workers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.needs import lacks

REPO = Path(__file__).resolve().parents[1]
#: The demo, small enough for a minute on one core.
SHRUNK = {
    "pool.synthetic": "8",
    "pool.heldout_per_source": "2",
    "training.steps": "2",
    "training.groups_per_step": "2",
    "training.eval_every": "2",
    "hardware.batch_size": "32",
    "passk.draws": "200",
}
#: As forms have it.
SMALL = {
    "profile": "demo",
    "arms": ["panel"],
    "engine": "transformers",
    "settings": [{"field": field, "value": value} for field, value in SHRUNK.items()],
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def end(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    """The process and everything that it started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    process.wait(30)


def _postgres_bin() -> Path | None:
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return homes[-1].parent if homes else Path(on_path).resolve().parent if on_path else None


@contextmanager
def tinker_server(root: Path, port: int) -> Iterator[str]:
    """The Tinker server of this project with the demo's model, in this process; yields its address."""
    import uvicorn

    from tasks.engines.hardware import Execution, Hardware
    from tasks.engines.sampling.transformers import TransformersGenerator
    from tasks.engines.tinker_server.api import Api
    from tasks.engines.tinker_server.app import app_of

    demo, hardware = REPO / "models" / "demo", Hardware(device="cpu", max_model_len=256)
    generator = TransformersGenerator(demo, hardware)
    api = Api(demo, "demo", root, generator, Execution(device="cpu"), alpha=16, context=256)
    server = uvicorn.Server(uvicorn.Config(app_of(api), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
    api.jobs.close()


@contextmanager
def postgres() -> Iterator[str]:
    """A cluster of its own, run as an ordinary user; yields Prefect's connection URL.

    Not below pytest's folder, which later sessions close to other users.
    """
    found = _postgres_bin()
    if found is None:
        lacks("postgres", "no Postgres: apt-get install postgresql")
    port, data = free_port(), Path(tempfile.mkdtemp(prefix="varband-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(data, "postgres", "postgres")
    run = {"cwd": "/", "check": True, "capture_output": True}
    subprocess.run([*as_user, str(found / "initdb"), "-D", str(data), "-U", "prefect", "-A", "trust", "-N"], **run)  # type: ignore[call-overload]
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories= -c fsync=off"
    ctl = [*as_user, str(found / "pg_ctl"), "-D", str(data)]
    subprocess.run(
        [*ctl, "-w", "-l", str(data / "log"), "-o", options, "start"], cwd="/", check=True, stdout=subprocess.DEVNULL
    )
    try:
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*ctl, "-m", "immediate", "stop"], cwd="/", check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(data, ignore_errors=True)


def lose_database(url: str) -> None:
    """Drop Prefect's database under its feet and leave an empty one in its place."""
    import asyncio

    import asyncpg

    where, _, name = url.replace("postgresql+asyncpg", "postgresql").rpartition("/")

    async def drop() -> None:
        connection = await asyncpg.connect(f"{where}/template1")
        await connection.execute(f"drop database {name} with (force)")
        await connection.execute(f"create database {name}")
        await connection.close()

    asyncio.run(drop())


def prefect_environment(home: Path, root: Path, port: int) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.endswith("_API_AUTH_STRING")},
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "results"),
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
        "OMP_NUM_THREADS": "1",
        "VARBAND_ROOT": str(root),
        "PYTHONPATH": str(REPO),
        "PYTHONWARNINGS": "ignore",
    }


class Server:
    """A Prefect server that can be killed and started again on the same database."""

    def __init__(self, folder: Path, database: str | None) -> None:
        self.port, self.folder = free_port(), folder
        self.root = folder / "root"
        self.environment = prefect_environment(folder / "home", self.root, self.port)
        self.database = database or f"sqlite+aiosqlite:///{folder / 'prefect.db'}"
        self.environment["PREFECT_API_DATABASE_CONNECTION_URL"] = self.database
        self.url = f"http://127.0.0.1:{self.port}"
        self._children: list[subprocess.Popen[bytes]] = []
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.process = self.start()

    @property
    def password(self) -> str:
        """The one that `varband server start` made."""
        profiles = tomllib.loads((self.folder / "home" / "profiles.toml").read_text())
        return profiles["profiles"][profiles["active"]]["PREFECT_API_AUTH_STRING"]

    def start(self) -> subprocess.Popen[bytes]:
        words = ["-c", "from cli.main import main; main()", "server", "start", "--port", str(self.port)]
        self.process = self.spawn(words, "server.log")
        until = time.monotonic() + 240
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urlopen(f"{self.url}/api/health", timeout=2):
                    return self.process
            except OSError:
                time.sleep(0.5)
        pytest.fail(f"the Prefect server did not come up:\n{(self.folder / 'server.log').read_text()[-3000:]}")

    def spawn(self, words: list[str], log: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=REPO,
                env={**self.environment, **environment},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._children.append(process)
        return process

    def worker(self, pool: str, name: str, limit: int = 1, **environment: str) -> subprocess.Popen[bytes]:
        words = ["-m", "prefect", "worker", "start", "--pool", pool, "--name", name, "--limit", str(limit)]
        self.workers[name] = self.spawn(words, f"worker-{name}.log", **environment)
        return self.workers[name]

    def varband(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        code = "from cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=REPO,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def stop(self) -> None:
        for process in reversed(self._children):
            end(process)


@contextmanager
def prefect_server(folder: Path, database: str | None = None) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder, database)
    try:
        yield server
    finally:
        server.stop()
