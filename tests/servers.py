"""Real servers for tests, on 127.0.0.1 and free ports: Postgres, a Prefect server on it, process workers."""

import hashlib
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import orjson
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
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
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

    def __init__(self, folder: Path, database: str | None, **environment: str) -> None:
        self.port, self.folder = free_port(), folder
        self.root = folder / "root"
        self.environment = prefect_environment(folder / "home", self.root, self.port)
        self.database = database or f"sqlite+aiosqlite:///{folder / 'prefect.db'}"
        self.environment |= {"PREFECT_API_DATABASE_CONNECTION_URL": self.database, **environment}
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
def prefect_server(folder: Path, database: str | None = None, **environment: str) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder, database, **environment)
    try:
        yield server
    finally:
        server.stop()


# HTTP on this machine.


class Quiet(BaseHTTPRequestHandler):
    """Answers without a line in the log."""

    protocol_version = "HTTP/1.1"

    def read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> None:
        """body: bytes, or what becomes JSON."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def serving(handler: type[Quiet]) -> Iterator[str]:
    """Its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A webhook's address, and the JSON bodies that were posted to it, in order."""
    received: list[dict[str, str]] = []

    class Keep(Quiet):
        def do_POST(self) -> None:
            received.append(orjson.loads(self.read()))
            self.answer(200)

    with serving(Keep) as address:
        yield f"{address}/hook", received


# The hub's HTTP on this machine, as far as `huggingface_hub` and `datasets` ask for it: repositories of a folder.


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(root: Path) -> Iterator[str]:
    """Its address. root: `models/OWNER/NAME/…` and `datasets/OWNER/NAME/…`; one that has a file GATED is kept to those
    who asked. Every repository has the one COMMIT."""

    class Handler(Quiet):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.read()
            self.do_GET()

        def do_GET(self) -> None:
            words = unquote(urlsplit(self.path).path).strip("/").split("/")
            api = words[:1] == ["api"]
            words = words[1:] if api else words
            kind = words.pop(0) if words[0] in ("models", "datasets") else "models"
            folder, (verb, revision, *rest) = root / kind / words[0] / words[1], [*words[2:], "revision", COMMIT][:99]
            if not folder.is_dir():
                return self._say(404, {"error": "Repository not found"}, "RepoNotFound")
            if (folder / "GATED").exists():
                return self._say(403, {"error": "Access to it is restricted"}, "GatedRepo")
            if revision != COMMIT:
                return self._say(404, {"error": "no such commit"}, "RevisionNotFound")
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            if api:
                entries = [self._entry(path, folder) for path in files]
                about = {
                    "id": "/".join(words[:2]),
                    "sha": COMMIT,
                    "siblings": [{"rfilename": e["path"]} for e in entries],
                }
                return self._say(200, entries if verb in ("tree", "paths-info") else about)
            asked = folder.joinpath(*[word for word in rest if word not in ("revision", COMMIT)])
            if not asked.is_file():
                return self._say(404, {"error": "Entry not found"}, "EntryNotFound")
            return self.answer(200, asked.read_bytes(), {"ETag": f'"{_oid(asked)}"', "X-Repo-Commit": COMMIT})

        def _entry(self, path: Path, folder: Path) -> dict[str, object]:
            name = path.relative_to(folder).as_posix()
            return {"type": "file", "path": name, "size": path.stat().st_size, "oid": _oid(path)}

        def _say(self, status: int, body: object, code: str = "") -> None:
            self.answer(status, body, {"X-Error-Code": code} if code else {})

    with serving(Handler) as address:
        yield address


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()


# A provider of closed models: text without token ids and log-probs.


@contextmanager
def text_provider(
    answer: Callable[[dict[str, Any]], str], *, chat_only: bool = False, refuses: tuple[str, ...] = ()
) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Its address, and the (path, body) of each request that it answered with `answer(body)`. A completion ends, and
    is counted, by words. refuses: parameters that it does not know."""
    answered: list[tuple[str, dict[str, Any]]] = []

    class Handler(Quiet):
        def do_POST(self) -> None:
            body, path = orjson.loads(self.read()), self.path
            if chat_only and path != "/v1/chat/completions":
                return self.answer(404, {"error": {"message": "This is a chat model"}})
            if bad := [name for name in refuses if name in body]:
                words = f"Unsupported parameter: '{bad[0]}' is not supported with this model."
                return self.answer(400, {"error": {"message": words}})
            answered.append((path, body))
            words, most = answer(body).split(" "), body.get("max_tokens") or body["max_completion_tokens"]
            text, finish = " ".join(words[:most]), "length" if len(words) > most else "stop"
            prompt = body.get("prompt") or " ".join(one["content"] for one in body["messages"])
            choice = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
            usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": min(len(words), most)}
            self.answer(200, {"model": "gpt-9-2026", "choices": [choice | {"finish_reason": finish}], "usage": usage})

    with serving(Handler) as address:
        yield f"{address}/v1", answered
