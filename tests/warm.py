"""`varband` in a process of its own that need not import its libraries again: forked from a server that has.

A run of tests has two servers, one for commands that load an engine and one for the others; each imports when it is
first asked. What libraries read of an environment while they are imported is the server's: a command with another one
imports them itself, and so does one whose start is under test (`subprocess`).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

VARBAND = str(Path(sys.executable).parent / "varband")
REPO = Path(__file__).resolve().parents[1]
#: The user's shell. Libraries that tests import in this process add to its environment what no shell has.
SHELL = dict(os.environ)
#: What no library reads when it is imported, by how it begins.
READ_LATE = ("COLUMNS", "DO_NOT_TRACK", "OLDPWD", "PWD", "PYTEST_", "PYTHONHASHSEED", "SHLVL", "VARBAND_", "_")
COMMANDS = (
    "cli.run",
    "cli.store",
    "cli.study",
    "cli.view",
    "flows.experiment",
    "flows.running.accounting",
    "pandas",
    "transformers.models.auto.tokenization_auto",
)
ENGINES = (
    *COMMANDS,
    "vllm.entrypoints.llm",
    "vllm.v1.worker.cpu_worker",
    "sentence_transformers",
    "tasks.engines.learning.learner",
    "statsmodels.api",
)
SERVERS = {"VARBAND_WARM_COMMANDS": COMMANDS, "VARBAND_WARM_ENGINES": ENGINES}


class Command:
    """A process of `words`, used as a `subprocess.Popen`: a session of its own, no input, its text when it has ended.

    output: the files that it writes to instead, as this process's own 1 and 2.
    """

    def __init__(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str], server: str, output: Sequence[int] = ()
    ) -> None:
        self.returncode: int | None = None
        self._said = [] if output else [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 - until it is collected
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(os.environ[server])
        asked = json.dumps([[*words], str(cwd), {**env}]).encode()
        socket.send_fds(self._line, [len(asked).to_bytes(8)], output or [one.fileno() for one in self._said])
        self._line.sendall(asked)
        self.pid = int.from_bytes(_exactly(self._line, 8))

    def wait(self, timeout: float | None = None) -> int:
        """Errors: subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int.from_bytes(_exactly(self._line, 8), signed=True)
            except TimeoutError:
                raise subprocess.TimeoutExpired("varband", timeout or 0.0) from None
            self._line.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        for file in self._said:
            file.seek(0)
        out, err = (file.read() for file in self._said)
        return out, err


def start(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], engine: bool) -> Command | subprocess.Popen[str]:
    """words: a script in Python and its arguments. engine: whether it loads torch."""
    if _at_import(env) != _at_import(SHELL):
        words = [sys.executable, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=env, start_new_session=True)
    return Command(words, cwd, env, "VARBAND_WARM_ENGINES" if engine else "VARBAND_WARM_COMMANDS")


def run(
    words: Sequence[str], *, cwd: Path = REPO, env: Mapping[str, str] = SHELL, engine: bool = False
) -> subprocess.CompletedProcess[str]:
    """What `start` started, when it has ended."""
    process = start(words, cwd=cwd, env=env, engine=engine)
    out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.wait(), out, err)


@contextmanager
def servers() -> Iterator[None]:
    """For the process that starts the tests; those that it starts find them in their environment."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="warm")))
        for name, modules in SERVERS.items():
            listener = ends.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(folder / name))
            listener.listen()
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(listener.fileno()), *modules],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                cwd=REPO,
                env=SHELL,
                start_new_session=True,
            )
            ends.enter_context(server)  # closes its input, which ends it
            os.environ[name] = str(folder / name)
        yield


def _at_import(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(READ_LATE)}


def _exactly(line: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        if not (part := line.recv(count - len(parts))):
            raise ConnectionError("a server of warm processes ended; what it said is above")
        parts += part
    return parts


def _serve(listener: socket.socket, modules: Sequence[str]) -> list[str]:
    """Forks until its input ends. Returns in every fork, as the process of the words that it returns."""
    running: dict[int, tuple[int, socket.socket]] = {}
    imported = False
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        waiting.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd == 0:
                    os._exit(0)
                if key.fd in running:
                    pid, line = running.pop(key.fd)
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    _tell(line, code)
                    line.close()
                    continue
                line, _ = listener.accept()
                if not imported:
                    _import(modules)
                    imported = True
                size, said, *_ = socket.recv_fds(line, 8, 2)
                words, cwd, env = json.loads(_exactly(line, int.from_bytes(size)))
                if (pid := os.fork()) == 0:
                    for _, other in running.values():
                        other.close()
                    listener.close()
                    line.close()
                    _become(said, cwd, env)
                    return words
                for handle in said:
                    os.close(handle)
                _tell(line, pid)
                watch = os.pidfd_open(pid)
                running[watch] = pid, line
                waiting.register(watch, selectors.EVENT_READ)


def _tell(line: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # who asked does not wait for it
        line.sendall(number.to_bytes(8, signed=True))


def _import(modules: Sequence[str]) -> None:
    from tasks.engines.hardware import quiet_libraries

    quiet_libraries(threads=1)  # as the studies of tests have it
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # no fork looks through what it has of its server
    atexit.register(gc.unfreeze)


def _become(said: Sequence[int], cwd: str, env: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, handle in enumerate(said, 1):
        os.dup2(handle, number)
        os.close(handle)


def _leave(code: int) -> None:
    """Exit without taking apart what the server imported, which takes seconds of processor time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def as_program(folder: Path) -> dict[str, str]:
    """An environment whose shell finds `varband` in `folder`: the command of this checkout, forked from a server; and
    this Python."""
    for name, words in (("varband", "-S -m tests.warm varband"), ("python", "")):
        (program := folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    kept = {name: value for name, value in SHELL.items() if name not in ("VARBAND_ROOT", "PREFECT_API_URL")}
    found = {"PATH": f"{folder}{os.pathsep}{SHELL['PATH']}", "PYTHONPATH": str(REPO)}
    return kept | found | {name: os.environ[name] for name in SERVERS}


if __name__ == "__main__":
    if sys.argv[1] == "varband":
        words = [VARBAND, *sys.argv[2:]]
        sys.exit(Command(words, Path.cwd(), os.environ, "VARBAND_WARM_COMMANDS", output=(1, 2)).wait())
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _leave(end.code or 0)
    _leave(0)
