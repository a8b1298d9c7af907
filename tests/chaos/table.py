"""Try every fault at random moments, keep each outcome in a file, and print the tables of docs/reliability.md from it.

python -m tests.chaos.table --minutes 60        a small study; goes on where the file's last run ended
python -m tests.chaos.table --times 10 --only "full disk"
python -m tests.chaos.table --server --times 3  what a Prefect server on Postgres runs; minutes a try
python -m tests.chaos.table --report            the tables, of all that is in the file (--server: its kinds first)
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.chaos import distant, driver, faults, server_faults
from tests.chaos.results import RECOVERED, REPO, RESULTS, Calm, Tried, append, report, tried
from tests.chaos.trial import CannotTry, TooLate, Trial, ended
from tests.chaos.whole import Left, left
from tests.s3_server import object_storage
from tests.servers import postgres, prefect_server

#: An undisturbed run is timed again after so many faults: the machine has other work too.
EVERY = 10
#: A kind that costs several times as much is tried so much more seldom.
RARE = dict.fromkeys(distant.STORAGE_FAULTS, 4) | dict.fromkeys(distant.ENGINE_FAULTS, 2)
NETWORK = {**dict.fromkeys(distant.ENGINE_FAULTS, "engine"), **dict.fromkeys(distant.STORAGE_FAULTS, "storage")}
KINDS = (*faults.FAULTS, *distant.ENGINE_FAULTS, *distant.STORAGE_FAULTS)


@functools.cache
def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (
        "+dirty" if git("status", "--porcelain", "-uno", "--", "*.py") else ""
    )


def turns(path: Path, kinds: Mapping[str, int], times: int, until: float) -> Iterator[tuple[str, int]]:
    """(kind, seed) of what was tried least, weighed by what it costs, until each was tried so often or time is up."""
    seeds = dict.fromkeys(kinds, 0)
    for one in tried(path):
        if one.kind in seeds:
            seeds[one.kind] = max(seeds[one.kind], one.seed + 1)
    counts = {kind: sum(one.kind == kind for one in tried(path)) for kind in kinds}
    while time.monotonic() < until and any(n < times for n in counts.values()):
        kind = min((k for k in kinds if counts[k] < times), key=lambda k: counts[k] * kinds[k])
        counts[kind] += 1
        seeds[kind] += 1
        yield kind, seeds[kind] - 1


class SmallStudy:
    """seconds: of undisturbed runs by what they reach over a network, the newest last."""

    def __init__(self, folder: Path, path: Path, bucket: distant.Bucket | None) -> None:
        self.folder, self.path, self.bucket = folder, path, bucket
        self.faults: dict[str, faults.Fault] = {**faults.FAULTS, **distant.ENGINE_FAULTS}
        if bucket:
            self.faults |= {kind: functools.partial(fault, bucket) for kind, fault in distant.STORAGE_FAULTS.items()}
        self.seconds: dict[str, list[float]] = {}
        self.undisturbed = Left({}, {}, 0)
        self._tried = 0

    def calm(self, how: str) -> None:
        """Time an undisturbed run, and compare it with the first one."""
        folder = self._empty(f"calm-{how}-{len(self.seconds.get(how, []))}")
        trial = Trial(folder, self.undisturbed, 0.0, random.Random(0))
        began = time.monotonic()
        if how == "plain":
            ended(trial.start(), 0)
            elapsed = time.monotonic() - began
            if not self.undisturbed.files:
                self.undisturbed = trial.undisturbed = left(trial.root)
            trial.compared()
        else:
            reached = {
                "engine": distant.undisturbed_elsewhere,
                **({"storage": self.bucket.undisturbed} if self.bucket else {}),
            }
            reached[how](trial)
            elapsed = time.monotonic() - began
        self.seconds.setdefault(how, []).append(elapsed)
        if len(self.seconds[how]) > 1:  # the first one imports
            append(self.path, Calm(how, round(elapsed, 2), driver.shares(trial.trace, began, began + elapsed)))
        shutil.rmtree(folder)

    def attempt(self, kind: str, seed: int) -> Tried:
        how = NETWORK.get(kind, "plain")
        if not self.undisturbed.files and how != "plain":
            self.calm("plain")  # which others are compared with
        timed = len(self.seconds.get(how, ()))
        if self._tried % EVERY == 0 or timed < 2:
            for _ in range(max(1, 2 - timed)):
                self.calm(how)
        self._tried += 1
        usual = statistics.median(self.seconds[how][1:][-3:])
        rng, moment = random.Random(f"{kind}/{seed}"), -1.0
        while True:
            trial = Trial(self._empty("trial"), self.undisturbed, usual, rng, moment)
            try:
                outcome, recovery = RECOVERED, self.faults[kind](trial)
                break
            except TooLate as late:  # the same moment of a run that takes no longer than this one did
                usual, moment = min(usual, late.seconds) * 0.98, trial.moment
                continue
            except AssertionError as error:
                outcome, recovery = str(error), 0.0
                shutil.copytree(trial.folder, self.folder / f"failed-{KINDS.index(kind)}-{seed}", dirs_exist_ok=True)
                break
        load = round(os.getloadavg()[0], 1)
        more = {"moment": round(trial.moment, 4), "at": trial.at, "kept": trial.kept, "overcharged": trial.overcharged}
        return Tried(
            kind, seed, outcome, round(recovery, 2), seconds=round(usual, 2), load=load, commit=commit(), **more
        )

    def _empty(self, name: str) -> Path:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).mkdir(parents=True)
        return self.folder / name


def small_study(folder: Path, path: Path, kinds: list[str], times: int, until: float) -> int:
    with ExitStack() as stack:
        distances = set(distant.STORAGE_FAULTS) & set(kinds)
        bucket = distant.Bucket(stack.enter_context(object_storage())) if distances else None
        study = SmallStudy(folder, path, bucket)
        return _all(turns(path, {k: RARE.get(k, 1) for k in kinds}, times, until), study.attempt, path)


def on_server(folder: Path, path: Path, kinds: list[str], times: int, until: float) -> int:
    with postgres() as database, prefect_server(folder / "server", database) as server:
        server.root.mkdir()
        server.varband("deploy")
        server_faults.register_toys(server)
        server.worker("cpu", "cpu-1", limit=2)
        server.worker("gpu", "gpu-1")

        def attempt(kind: str, seed: int) -> Tried:
            name, rng = f"work-{list(server_faults.FAULTS).index(kind)}-{seed}", random.Random(f"{kind}/{seed}")
            outcome, recovery, load = RECOVERED, 0.0, round(os.getloadavg()[0], 1)
            try:
                recovery = server_faults.tried(server_faults.FAULTS[kind], server, name, rng)
            except AssertionError as error:
                outcome = str(error)[:300]
            return Tried(kind, seed, outcome, round(recovery, 2), at="an arm on a worker", load=load, commit=commit())

        # the database takes the toys' earlier runs with it: all of the others first
        last = [kind for kind in kinds if server_faults.FAULTS[kind] is server_faults.database_lost]
        others = [kind for kind in kinds if kind not in last]
        return sum(_all(turns(path, dict.fromkeys(part, 1), times, until), attempt, path) for part in (others, last))


def _all(asked: Iterator[tuple[str, int]], attempt: Callable[[str, int], Tried], path: Path) -> int:
    """How many did not end as they should."""
    failed, cannot = 0, set[str]()
    for kind, seed in asked:
        if kind in cannot:
            continue
        try:
            one = attempt(kind, seed)
        except CannotTry as reason:
            print(f"{kind}: not tried: {reason}", flush=True)
            cannot.add(kind)
            continue
        append(path, one)
        failed += one.outcome != RECOVERED
        print(f"{one.recovery:7.1f} s  {one.at:10}  {one.outcome:10}  {kind}, seed {seed}", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that grows")
    parser.add_argument("--times", type=int, default=10**6, help="until each kind is in the file so often")
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--only", action="append", default=[], help="part of a kind's name; may be repeated")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    every = list(server_faults.FAULTS if given.server else KINDS)
    if given.report:
        print(report(given.results, every))
        return
    kinds = [kind for kind in every if not given.only or any(part in kind for part in given.only)]
    if not kinds:
        sys.exit(f"no fault is called so; there are: {', '.join(every)}")
    until = time.monotonic() + 60 * given.minutes
    folder = Path(tempfile.mkdtemp(prefix="varband-chaos-"))
    failed = (on_server if given.server else small_study)(folder, given.results, kinds, given.times, until)
    if failed:
        sys.exit(f"{failed} did not end as an undisturbed run; what they left is under {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
