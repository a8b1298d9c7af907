"""What a large store costs: memory of every stage that reads a million rollouts, and how long people wait to look.

    python -m benchmarks.scale --root FOLDER        10⁶ rollouts of 1,000 tokens, 10⁴ artifacts, 10³ runs: 18 GB, four hours
    python -m benchmarks.scale --root FOLDER --rollouts 20000 --tokens 200 --artifacts 500 --runs 50

Each line is a process of its own. Prints measured, target, verdict; exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks.scale_data import GROUP, fill_ledger
from benchmarks.scale_stages import STAGES, alone
from storage.artifacts.kinds import Bands
from storage.artifacts.store import DATA, MANIFEST, Store
from storage.ledger import Ledger
from storage.records.runs import Run, now
from tests.dashboards.synthetic import made_up_study

#: Peak of a stage's process, libraries included.
MOST_MB = 500.0
#: Until a person sees something.
MOST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    target: float

    @property
    def met(self) -> bool:
        return self.value <= self.target

    def line(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{self.name:<62} {self.value:>12,.2f} {self.unit:<4} ≤ {self.target:>5,.0f}  {verdict}"


def figures(root: Path, problems: int) -> Iterator[Figure]:
    for name in STAGES:
        found = alone(root, problems, name)
        yield Figure(f"{name} ({found['seconds']:,.0f} s)", found["mb"], "MB", MOST_MB)


def crowded(root: Path, artifacts: int, runs: int) -> None:
    """A study with its report among as many small artifacts and records of runs."""
    report = made_up_study(root, problems=100, steps=10)
    store = Store(root)
    bands = store.refs("bands")[0]
    manifest = (store.path(bands) / MANIFEST).read_text()
    for i in range(artifacts - len(store.refs())):
        ref = Bands.of(f"{i:016x}")
        store.path(ref).mkdir()
        (store.path(ref) / MANIFEST).write_text(manifest.replace(bands.fingerprint, ref.fingerprint))
        (store.path(ref) / DATA).symlink_to(store.path(bands) / DATA)
    one = Run(
        id="-",
        profile="demo",
        request={},
        state="finished",
        report=str(report),
        started=now(),
        heartbeat=now(),
        host="here",
        pid=1,
    )
    (root / "runs").mkdir(exist_ok=True)
    for i in range(runs):
        (root / "runs" / f"demo-{i:08x}.json").write_text(
            one.model_copy(update={"id": f"demo-{i:08x}"}).model_dump_json()
        )


def waits(root: Path) -> Iterator[Figure]:
    """What people wait for, with the start of the process."""
    for words in (("store", "ls"), ("runs",), ("plan", "demo"), ("store", "sql", "select count(*) from artifacts")):
        command = [str(Path(sys.executable).parent / "varband"), *words, "--root", str(root)]
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
        yield Figure(f"varband {' '.join(words)}", min(seconds), "s", MOST_SECONDS)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    for name, default in (("rollouts", 1_000_000), ("tokens", 1000), ("artifacts", 10_000), ("runs", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(words)
    fill_ledger(Ledger(given.root), given.rollouts // GROUP, given.tokens)
    crowded(given.root / "crowded", given.artifacts, given.runs)
    missed = 0
    for figure in chain(figures(given.root, given.rollouts // GROUP), waits(given.root / "crowded")):
        print(figure.line(), flush=True)
        missed += not figure.met
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
