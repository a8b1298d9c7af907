"""Try every fault many times at random moments and print the tables of docs/reliability.md.

python -m tests.chaos.table 12            a small study, one process each
python -m tests.chaos.table 3 --server    what a Prefect server on Postgres runs; minutes a try
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.chaos import faults, server_faults
from tests.chaos.driver import run
from tests.servers import postgres, prefect_server


def table(names: Iterable[str], times: int, attempt: Callable[[str, int, random.Random], float]) -> None:
    """One line a fault. attempt: the seconds that it took to recover, or an AssertionError."""
    print("| fault | tried | recovered | seconds to recover, median (worst) |\n|---|---|---|---|")
    for name in names:
        seconds: list[float] = []
        failed: list[str] = []
        for i in range(times):
            try:
                seconds.append(attempt(name, i, random.Random(f"{name}/{i}")))
            except faults.CannotTry as reason:
                failed.append(str(reason))
                break
            except AssertionError as error:
                failed.append(str(error))
        took = f"{statistics.median(seconds):.1f} ({max(seconds):.1f})" if seconds else "–"
        print(f"| {name} | {len(seconds) + len(failed)} | {len(seconds)} | {took} |", flush=True)
        for words in failed:
            print(f"<!-- {name}: {words} -->", flush=True)


def small_study(folder: Path, times: int) -> None:
    run(folder / "undisturbed")
    undisturbed = faults.results(folder / "undisturbed")
    names = list(faults.FAULTS)

    def attempt(name: str, i: int, rng: random.Random) -> float:
        return faults.FAULTS[name](folder / f"{names.index(name)}-{i}", undisturbed, rng).recovery

    table(names, times, attempt)


def on_server(folder: Path, times: int) -> None:
    known: Mapping[str, server_faults.Fault] = server_faults.FAULTS
    names = list(known)
    with postgres() as database, prefect_server(folder, database) as server:
        server.root.mkdir()
        server.varband("deploy")
        server_faults.register_toys(server)
        server.worker("cpu", "cpu-1", limit=2)
        server.worker("gpu", "gpu-1")

        def attempt(name: str, i: int, rng: random.Random) -> float:
            return server_faults.tried(known[name], server, f"work-{names.index(name)}-{i}", rng)

        table(names, times, attempt)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (on_server if "--server" in sys.argv else small_study)(Path(folder), int(sys.argv[1]))


if __name__ == "__main__":
    main()
