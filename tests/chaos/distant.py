"""Faults of what the small study reaches over a network: the engine's server, and object storage."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized

from tests.chaos import driver
from tests.chaos.driver import CONTEXT, begin
from tests.chaos.remote import serve
from tests.chaos.trial import Trial, ended
from tests.s3_server import ObjectStorage
from tests.servers import free_port


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


def undisturbed_elsewhere(trial: Trial) -> None:
    with sampled_elsewhere(trial, 60):
        trial.to_the_end()


def engine_away(trial: Trial) -> None:
    """Killed, and longer away than the run waits: it parks (75). It comes back: the same command goes on."""
    with sampled_elsewhere(trial, 0.5) as engine:
        process = trial.begun()
        engine.kill()
        ended(process, 0, 75)
        engine.start()
        trial.to_the_end()


def engine_restarted(trial: Trial) -> None:
    """Killed and back at once, as a supervisor has it: the run goes on by itself."""
    with sampled_elsewhere(trial, 60) as engine:
        process = trial.begun()
        engine.kill()
        engine.start()
        ended(process, 0)
        trial.compared()


def engine_garbles(trial: Trial) -> None:
    """Up to ten answers are garbage with status 200, and the process is killed a moment later or not."""
    with sampled_elsewhere(trial, 60) as engine:
        process = trial.begun()
        engine.garbage.value = trial.rng.randrange(1, 11)
        process.join(trial.rng.random() * 0.5 * trial.seconds)
        if process.exitcode is None and trial.rng.random() < 0.5:
            trial.signal(process, signal.SIGKILL)
        else:
            ended(process, 0)
        trial.to_the_end()


#: Seconds after which a machine that is not heard of is taken for dead.
SILENCE = "2"


class Bucket:
    """Roots on one S3 server, whose credentials this process has."""

    def __init__(self, server: ObjectStorage) -> None:
        self.server = server
        server.make_bucket("varband-chaos")

    def of(self, trial: Trial) -> ObjectStorage:
        trial.address = f"s3://varband-chaos/{uuid.uuid4().hex}"
        os.environ["VARBAND_CACHE"] = str(trial.folder / "cache")
        trial.words = {**self.server.environment, "VARBAND_CACHE": str(trial.folder / "cache")}
        return self.server

    def undisturbed(self, trial: Trial) -> None:
        self.of(trial)
        trial.to_the_end()

    def away(self, trial: Trial) -> None:
        """For up to four seconds: ridden out."""
        server = self.of(trial)
        process = trial.begun()
        server.kill()
        time.sleep(trial.rng.random() * 4)
        server.start()
        ended(process, 0)
        trial.compared()

    def away_for_long(self, trial: Trial) -> None:
        """Longer than the run waits: it parks (75). It comes back: the same command goes on."""
        server = self.of(trial)
        trial.words |= {"VARBAND_STORAGE_PATIENCE": "1"}
        process = trial.begun()
        server.kill()
        ended(process, 75)
        server.start()
        trial.to_the_end()

    def machine_lost(self, trial: Trial) -> None:
        """The process is killed while its storage is away, and the next machine has no working copy."""
        server = self.of(trial)
        process = trial.begun()
        server.kill()
        trial.signal(process, signal.SIGKILL, 2)
        server.start()
        shutil.rmtree(trial.folder / "cache")
        trial.to_the_end()

    def several_killed(self, trial: Trial, machines: int = 3, apart: float = 1.0, answer: float = 0.03) -> None:
        """Machines with working copies of their own start the same study one after the other. Then one after the other
        is killed and begun again without its copy, and all are left to finish.

        apart: seconds between their starts. answer: seconds that a rollout takes.
        """
        self.of(trial)
        at_work: list[BaseProcess] = []

        def begin(nth: int) -> BaseProcess:
            words = trial.words | {
                "VARBAND_CACHE": str(trial.folder / f"cache-{nth}"),
                "CHAOS_MACHINE": f"machine-{nth}",
            }
            words |= {"CHAOS_SILENCE": SILENCE, "CHAOS_ANSWER_SECONDS": str(answer)}
            return driver.start(trial.address, trial.folder / f"trace-{nth}", **words)

        trial.began = time.monotonic()
        for nth in range(machines):
            at_work.append(begin(nth))
            time.sleep(apart)
        for nth in trial.rng.sample(range(machines), machines):
            if at_work[nth].exitcode is None:
                at_work[nth].kill()
                at_work[nth].join()
                trial.batches += 1
                shutil.rmtree(trial.folder / f"cache-{nth}", ignore_errors=True)
                at_work[nth] = begin(nth)
            time.sleep(trial.rng.random() * 2 * apart)
        for process in at_work:
            ended(process, 0)
        trial.compared()


#: What is done → how.
ENGINE_FAULTS = {
    "engine's server killed, away for longer than patience": engine_away,
    "engine's server killed, back at once": engine_restarted,
    "engine answers with garbage, and a kill or none": engine_garbles,
}
STORAGE_FAULTS = {
    "object storage away for up to 4 s": Bucket.away,
    "object storage away for longer than patience": Bucket.away_for_long,
    "three machines on one bucket, each killed": Bucket.several_killed,
    "machine lost while its object storage is away": Bucket.machine_lost,
}
