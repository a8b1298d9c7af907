"""Faults of object storage, on which the small study has its root."""

import os
import shutil
import signal
import time
import uuid
from multiprocessing.process import BaseProcess

from tests.chaos import driver
from tests.chaos.trial import Trial, ended
from tests.s3_server import ObjectStorage

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
        """Longer than the run waits: it parks (75). It comes back: the same command resumes it."""
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


STORAGE_FAULTS = {
    "object storage away for up to 4 s": Bucket.away,
    "object storage away for longer than patience": Bucket.away_for_long,
    "three machines on one bucket, each killed": Bucket.several_killed,
    "machine lost while its object storage is away": Bucket.machine_lost,
}
