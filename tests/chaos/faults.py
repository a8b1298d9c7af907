"""Faults, each as a function: break a small study at a random moment, run the same command again, compare.

After every fault: the final artifacts equal those of an undisturbed run, no rollout was lost, none was doubled.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq

from flows.upkeep.verify import verify
from storage.records.garbage import BIN, collect
from tests.chaos.study import BATCH
from tests.chaos.trial import CannotTry, Trial, ended
from tests.chaos.whole import Broken

Fault = Callable[[Trial], None]


def _signalled(how: int, *codes: int) -> Fault:
    def fault(trial: Trial) -> None:
        process = trial.begun()
        trial.signal(process, how, *codes)
        trial.to_the_end()

    return fault


@contextmanager
def small_disk(root: Path) -> Iterator[None]:
    root.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(root)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise CannotTry("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(root)], check=False)


@contextmanager
def filled(root: Path) -> Iterator[None]:
    """Not a byte is left on its disk."""
    filler = root / ".filler"
    with filler.open("wb", buffering=0) as handle:
        try:
            while handle.write(bytes(1 << 20)):
                pass
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()


def full_disk(trial: Trial) -> None:
    """A sentence and exit code 2, whatever meets it; room is made, and the same command resumes it."""
    with small_disk(trial.root):
        process = trial.begun()
        with filled(trial.root):
            ended(process, 0, 2)
        trial.to_the_end()


def two_at_once(trial: Trial) -> None:
    """Two runs of the same study, one of them killed."""
    both = [trial.start()]
    time.sleep(trial.rng.random() * 0.3 * trial.seconds)
    both.append(trial.start())
    trial.at_the_moment(both[0])
    killed, other = trial.rng.sample(both, 2)
    trial.signal(killed, signal.SIGKILL)
    ended(other, 0)
    trial.to_the_end()


def bit_flipped(trial: Trial) -> None:
    """A bit of a shard, an artifact, a line of charges or the run's record, after a kill. What is in a shard is set aside first, as its
    sentence says, and what it held is sampled again; the others need nobody."""
    process = trial.begun()
    trial.signal(process, signal.SIGKILL)
    there = [p for pattern in ("ledger/*/*/shard-*", "[a-z]*/*-*/*.*", "runs/*.json") for p in trial.root.glob(pattern)]
    if there:
        victim = trial.rng.choice(sorted(there))
        raw = bytearray(victim.read_bytes())
        raw[trial.rng.randrange(len(raw))] ^= 1 << trial.rng.randrange(8)
        if victim.name.startswith("shard"):
            trial.taken = pq.read_metadata(victim).num_rows
        if victim.parent.parent.name == "spending":
            trial.uncharged = BATCH
        victim.write_bytes(raw)
        verify(trial.root, repair=True)
    trial.to_the_end()


def artifact_deleted(trial: Trial) -> None:
    """Under the feet of a run that is then killed."""
    process = trial.begun()
    there = sorted(trial.root.glob("[a-z]*/*-*/manifest.json"))
    if there:
        os.rename(trial.rng.choice(there).parent, trial.folder / "taken")
    trial.signal(process, signal.SIGKILL)
    trial.to_the_end()


@contextmanager
def collecting(root: Path) -> Iterator[None]:
    """`varband store gc --older-than 0d --yes` over and over. Errors: Broken if it takes what the study wants."""
    over, taken, said = threading.Event(), [], []

    def loop() -> None:
        while not over.wait(0.05):
            try:
                taken.extend(collect(root, older_than=timedelta(0), remove=True)["path"].to_pylist())
            except Exception as error:  # a thread keeps to itself what it ended with
                said.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if wanted := [path for path in taken if not path.startswith((".work", BIN))]:
        raise Broken(f"lost: gc took {wanted}")
    if said:
        raise Broken(f"ended: gc says {said[0]}")


def collected(trial: Trial) -> None:
    with collecting(trial.root):
        _signalled(signal.SIGKILL)(trial)


#: What is done → how.
FAULTS: dict[str, Fault] = {
    "kill -9 of the process": _signalled(signal.SIGKILL),
    "SIGTERM (pre-emption)": _signalled(signal.SIGTERM, 75),
    "Ctrl-C": _signalled(signal.SIGINT, 130),
    "full disk": full_disk,
    "bit flip, after a kill": bit_flipped,
    "artifact deleted under a run, then a kill": artifact_deleted,
    "gc in a loop beside it, and a kill": collected,
    "two runs at once, one killed": two_at_once,
}
