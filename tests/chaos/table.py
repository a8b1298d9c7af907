"""Try every fault many times at random moments and print the table of docs/reliability.md.

python -m tests.chaos.table 20 [SEED]
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from pathlib import Path

from tests.chaos.driver import run
from tests.chaos.faults import FAULTS, CannotTry, Outcome, results


def main() -> None:
    times, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print("| fault | tried | recovered | rollouts kept before it | seconds to recover, median (worst) |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder) / "undisturbed")
        undisturbed = results(Path(folder) / "undisturbed")
        for name, fault in FAULTS.items():
            done: list[Outcome] = []
            failed: list[str] = []
            for i in range(times):
                try:
                    root = Path(folder) / f"{abs(hash(name))}-{i}"
                    done.append(fault(root, undisturbed, random.Random(f"{seed}/{name}/{i}")))
                except CannotTry as reason:
                    failed.append(str(reason))
                    break
                except AssertionError as error:
                    failed.append(str(error))
            if not done:
                print(f"| {name} | 0 | – | – | {failed[0]} |", flush=True)
                continue
            seconds, kept = [o.recovery for o in done], [o.kept for o in done]
            print(f"| {name} | {len(done) + len(failed)} | {len(done)} | {min(kept)} to {max(kept)} of 240"
                  f" | {statistics.median(seconds):.1f} ({max(seconds):.1f}) |", flush=True)  # fmt: skip
            for words in failed:
                print(f"<!-- {name}: {words} -->")


if __name__ == "__main__":
    main()
