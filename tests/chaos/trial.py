"""One attempt at breaking a small study: when it is broken, what it may cost, and whether all is there in the end."""

import os
import random
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from storage.roots import root_folder
from tests.chaos import driver
from tests.chaos.study import BATCH
from tests.chaos.whole import Broken, Left, check

WAIT = 300.0


class CannotTry(Exception):
    """This machine lacks what the fault needs."""


class TooLate(Exception):
    """The study was finished before the moment came: nothing was broken, and nothing is counted. seconds: it took."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True)
class Trial:
    """One attempt at breaking a study. folder: empty, its own. seconds: of an undisturbed run. moment: of the fault, as
    a share of it. words: what the study is started with.

    batches: that may be paid for and not kept. taken: rows of damaged shards. uncharged: rollouts of damaged charges.
    """

    folder: Path
    undisturbed: Left
    seconds: float
    rng: random.Random
    moment: float = -1.0
    address: str = ""
    words: dict[str, str] = field(default_factory=dict)
    began: float = 0.0
    batches: int = 0
    taken: int = 0
    uncharged: int = 0

    def __post_init__(self) -> None:
        self.moment = self.rng.random() if self.moment < 0 else self.moment

    @property
    def root(self) -> Path:
        return root_folder(self.address) if self.address else self.folder / "root"

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    def start(self) -> BaseProcess:
        self.trace.write_text("")
        self.began = self.began or time.monotonic()
        return driver.start(self.address or self.root, self.trace, **self.words)

    def begun(self) -> BaseProcess:
        """A run, at the moment of the fault. Errors: TooLate."""
        process = self.start()
        self.at_the_moment(process)
        return process

    def at_the_moment(self, process: BaseProcess) -> None:
        """Wait for it. Errors: TooLate."""
        process.join(self.seconds * self.moment)
        if process.exitcode is not None:
            raise TooLate(time.monotonic() - self.began)
        self.batches += 1

    def signal(self, process: BaseProcess, how: int, *codes: int) -> None:
        """codes: what it ends with; before it listens to signals and when it is done, the system's own will do."""
        outside = how == signal.SIGKILL or driver.stage_at(self.trace) in (driver.START, driver.END)
        os.kill(process.pid or 0, how)
        ended(process, 0, *codes, *((-how, 1) if outside else ()))

    def to_the_end(self) -> None:
        """The same command, and nothing happens to it. Errors: Broken."""
        ended(self.start(), 0)
        self.compared()

    def compared(self) -> None:
        """Errors: Broken."""
        check(self.root, self.undisturbed, self.batches * BATCH, self.taken, self.uncharged)


def ended(process: BaseProcess, *codes: int) -> int:
    """Errors: Broken for another exit code, or none in minutes."""
    process.join(WAIT)
    if process.exitcode is None:
        process.kill()
        raise Broken("stuck: a process did not end")
    if process.exitcode not in codes:
        raise Broken(f"ended: exit code {process.exitcode}, where {codes} are right")
    return process.exitcode
