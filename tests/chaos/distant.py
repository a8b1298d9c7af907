"""Faults of what the small study reaches over a network: the engine's server, and object storage."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from urllib.parse import urlsplit

from tests.chaos.driver import CONTEXT, begin
from tests.chaos.remote import serve
from tests.chaos.trial import Trial, ended
from tests.servers import credentials, free_port


class Engine:
    """The engine's server, which may be killed and started again."""

    def __init__(self) -> None:
        self.port, self.garbage = free_port(), CONTEXT.Value("i", 0)
        self.process = self.start()

    def start(self) -> BaseProcess:
        garbage: Synchronized[int] = self.garbage  # type: ignore[assignment]
        self.process = begin(serve, self.port, garbage)
        _wait_until_listening(self.port)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _wait_until_listening(port: int) -> None:
    for _ in range(1200):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the engine's server did not come up")


@contextmanager
def sampled_elsewhere(trial: Trial, patience: float) -> Iterator[Engine]:
    engine = Engine()
    trial.words = {"endpoint": f"http://127.0.0.1:{engine.port}/v1", "VARBAND_OPENAI_PATIENCE": str(patience)}
    try:
        yield engine
    finally:
        engine.kill()


def undisturbed_elsewhere(trial: Trial) -> float:
    with sampled_elsewhere(trial, 60):
        return trial.to_the_end()


def engine_away(trial: Trial) -> float:
    """Killed, and longer away than the run waits: it parks (75). It comes back: the same command goes on."""
    with sampled_elsewhere(trial, 0.5) as engine:
        process = trial.begun()
        engine.kill()
        ended(process, 0, 75)
        engine.start()
        return trial.again()


def engine_restarted(trial: Trial) -> float:
    """Killed and back at once, as a supervisor has it: the run goes on by itself."""
    with sampled_elsewhere(trial, 60) as engine:
        process = trial.begun()
        engine.kill()
        engine.start()
        ended(process, 0)
        return trial.compared()


def engine_garbles(trial: Trial) -> float:
    """Up to ten answers are garbage with status 200, and the process is killed a moment later or not."""
    with sampled_elsewhere(trial, 60) as engine:
        process = trial.begun()
        engine.garbage.value = trial.rng.randrange(1, 11)
        process.join(trial.rng.random() * 0.5 * trial.seconds)
        if process.exitcode is None and trial.rng.random() < 0.5:
            trial.signal(process, signal.SIGKILL)
        else:
            ended(process, 0)
        return trial.again()


class Wire:
    """A connection between a port of this machine and a server, which may be cut."""

    def __init__(self, url: str) -> None:
        self.to, self.cut = (urlsplit(url).hostname, urlsplit(url).port), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                if self.cut.is_set():
                    here.close()
                    continue
                there = socket.create_connection(self.to)  # type: ignore[arg-type]
                self._open |= {here, there}
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for one in (a, b):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            self._open.discard(one)

    def interrupt(self) -> None:
        """Every connection drops, and no new one comes about until it is mended."""
        self.cut.set()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.cut.clear()

    def close(self) -> None:
        self.interrupt()
        self._listening.close()


class Bucket:
    """Roots on one S3 server. Its credentials are this process's from now on."""

    def __init__(self, url: str) -> None:
        self.url = url
        os.environ |= credentials(url)
        import s3fs

        s3fs.S3FileSystem().mkdir("varband-chaos")

    @contextmanager
    def wired(self, trial: Trial) -> Iterator[Wire]:
        trial.address = f"s3://varband-chaos/{uuid.uuid4().hex}"
        os.environ["VARBAND_CACHE"] = str(trial.folder / "cache")
        with closing(Wire(self.url)) as wire:
            trial.words = {"AWS_ENDPOINT_URL_S3": wire.url, "VARBAND_CACHE": str(trial.folder / "cache")}
            yield wire

    def undisturbed(self, trial: Trial) -> float:
        with self.wired(trial):
            return trial.to_the_end()

    def away(self, trial: Trial) -> float:
        """For up to four seconds: ridden out, or a sentence and exit code 2; then the same command goes on."""
        with self.wired(trial) as wire:
            process = trial.begun()
            wire.interrupt()
            time.sleep(trial.rng.random() * 4)
            wire.mend()
            ended(process, 0, 2)
            return trial.again()

    def machine_lost(self, trial: Trial) -> float:
        """The process is killed while its storage is away, and the next machine has no working copy."""
        with self.wired(trial) as wire:
            process = trial.begun()
            wire.interrupt()
            trial.signal(process, signal.SIGKILL, 2)
            wire.mend()
            shutil.rmtree(trial.folder / "cache")
            return trial.again()


#: What is done → how.
ENGINE_FAULTS = {
    "engine's server killed, away for longer than patience": engine_away,
    "engine's server killed, back at once": engine_restarted,
    "engine answers with garbage, and a kill or none": engine_garbles,
}
STORAGE_FAULTS = {
    "object storage away for up to 4 s": Bucket.away,
    "machine lost while its object storage is away": Bucket.machine_lost,
}
