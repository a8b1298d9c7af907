"""Server, worker, dashboards and one study on this machine, for a person who wants to see everything at once.

They are processes of their own, started as a person would start each; when this one ends, all of them do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe as secret
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from storage.errors import UserError

REPO = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS, LOOK_SECONDS = 240.0, 15.0, 2.0
#: The server's password, and that of its clients.
AUTH = ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING")
VARBAND = ("-c", "from cli.main import main; main()")


@dataclass(slots=True)
class Everything:
    """folder: of the server's database and the logs. root: the store. processes: what was started, by its name.
    password: of the server; one that is set is kept."""

    folder: Path
    root: Path
    port: int
    app_port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    password: str = field(default_factory=lambda: next(filter(None, map(os.environ.get, AUTH)), f"demo:{secret()}"))

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def app(self) -> str:
        return f"http://127.0.0.1:{self.app_port}"

    def page(self, run: str) -> str:
        return f"http://127.0.0.1:{self.port}/runs/flow-run/{run}"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def environment(self) -> dict[str, str]:
        """A server of its own, whatever server this shell is set up for."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        return {
            **kept,
            **dict.fromkeys(AUTH, self.password),
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self.folder / 'prefect.db'}",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "DO_NOT_TRACK": "1",
            "VARBAND_ROOT": str(self.root),
            "VARBAND_URL": self.app,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")])),
        }

    def spawn(self, name: str, *words: str) -> None:
        """In a session of its own, so that Ctrl-C reaches it through `stop` alone, and with it what it started."""
        with self.log(name).open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words], env=self.environment(), stdout=out, stderr=out, start_new_session=True
            )

    def check(self) -> None:
        """Errors: UserError if one of the processes has ended, with the last of what it said."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                said = " ".join(self.log(name).read_text(errors="replace").split())[-300:]
                raise UserError(f"demo-server: the {name} ended with exit code {process.returncode}: …{said}")

    def wait_for(self, name: str, address: str) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            self.check()
            with suppress(OSError), urlopen(address, timeout=2):
                return
            time.sleep(0.5)
        raise UserError(f"demo-server: the {name} did not answer in {START_SECONDS:.0f} s; see {self.log(name)}")

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Basic {b64encode(self.password.encode()).decode()}",
        }
        try:
            with urlopen(Request(self.api + path, data, headers), timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise UserError(f"demo-server: the server refused: {error.read().decode()[:500]}") from None

    def start(self) -> None:
        """Server, deployments, worker and dashboards."""
        self.spawn("server", *VARBAND, "server", "--port", str(self.port))
        self.spawn("dashboards", *VARBAND, "serve", "--port", str(self.app_port))
        self.wait_for("server", f"{self.api}/health")
        deployed = subprocess.run([sys.executable, *VARBAND, "deploy"], env=self.environment(), capture_output=True)
        if deployed.returncode:
            raise UserError(f"demo-server: {deployed.stderr.decode(errors='replace').strip()[-500:]}")
        self.spawn("worker", "-m", "prefect", "worker", "start", "--pool", "cpu", "--limit", "1", "--name", "demo")
        self.wait_for("dashboards", self.app)

    def study(self, profile: str, settings: Sequence[str]) -> str:
        """Ask the worker for a study; the id of its run."""
        found = self.ask("/deployments/name/experiment/experiment")
        changed = [{"field": name, "value": value} for name, _, value in (s.partition("=") for s in settings)]
        study = {"profile": profile, "settings": changed}
        return self.ask(f"/deployments/{found['id']}/create_flow_run", {"parameters": {"study": study}})["id"]

    def watch(self, run: str) -> Iterator[str]:
        """Each state of the run as it comes, until its last."""
        said = ""
        while True:
            self.check()
            state = self.ask(f"/flow_runs/{run}")["state"]
            if state["name"] != said:
                yield (said := state["name"]) + (f": {state['message']}" if state.get("message") else "")
            if state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                return
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Everything that was started, and what it started: asked, then told."""
        for how, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            for process in self.processes.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, how)
            until = time.monotonic() + patience
            for process in self.processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))


@contextmanager
def everything(folder: Path, root: Path, port: int, app_port: int, tell: Callable[[str], None]) -> Iterator[Everything]:
    """All of it at work. Errors: UserError if a port is taken or a process does not come up."""
    for taken in (port, app_port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", taken))
            except OSError:
                raise UserError(f"port {taken} on 127.0.0.1 is taken: choose --port and --app-port") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    all_of_it = Everything(folder, root, port, app_port)
    try:
        tell("starting server, dashboards and worker …")
        all_of_it.start()
        yield all_of_it
    finally:
        all_of_it.stop()
