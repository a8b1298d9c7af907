"""One process of the small study, forked from a server that has imported everything: a fault costs what it breaks."""

import os
import sys
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from storage import leases
from storage.errors import UserError, disk_fault
from storage.roots import root_folder
from storage.stopping import stopped_by_signals
from tasks.stage import Progress
from tests.chaos import study

CONTEXT = get_context("forkserver")
#: With all that the command's own module imports, for every process runs it; the last ones are imported where needed.
PRELOADED = ("tests.chaos.driver", "tests.chaos.server_faults", "obstore", "scipy.special", "numpy.testing")
CONTEXT.set_forkserver_preload(list(PRELOADED))
#: Where a process is before it says anything, and after its last word.
START, END = "start", "end"


def start(root: Path | str, trace: Path, **environment: str) -> BaseProcess:
    """trace: told of every event. environment: of this process alone."""
    process = CONTEXT.Process(target=work, args=(str(root), trace, environment))
    process.start()
    return process


def work(root: str, trace: Path, environment: dict[str, str]) -> None:
    """As the command line carries a run out; exit codes as `varband run`."""
    os.environ.update(environment)
    if "CHAOS_MACHINE" in environment:  # elsewhere: its processes cannot be looked up, only heard
        leases.machine = lambda: environment["CHAOS_MACHINE"]
        leases.SILENCE_SECONDS, leases.BEAT_SECONDS = float(environment["CHAOS_SILENCE"]), 0.2
        leases.POLL_SECONDS[False] = 0.1
    with trace.open("a", buffering=1) as told, open(os.devnull, "w") as nowhere:
        sys.stderr = sys.stdout = nowhere if "CHAOS_ALOUD" not in os.environ else sys.stderr

        def listener(event: Progress) -> None:
            told.write(f"{time.monotonic():.4f}\t{event.event}\t{event.title}\n")

        try:
            with stopped_by_signals():
                study.run(root_folder(root), listener)
        except UserError as error:
            told.write(f"{time.monotonic():.4f}\tsaid\t{' '.join(str(error).split())}\n")
            os._exit(error.exit_code)
        except KeyboardInterrupt:
            os._exit(130)
        except Exception as error:
            if disk_fault(error) is None:
                told.write(f"{time.monotonic():.4f}\tfault\t{type(error).__name__}: {error}\n")
                raise
            os._exit(UserError.exit_code)


def told(trace: Path) -> list[tuple[float, str, str]]:
    """(moment, event, stage) of all that a process said."""
    if not trace.exists():
        return []
    lines = [line.split("\t", 2) for line in trace.read_text().splitlines() if line.count("\t") >= 2]
    return [(float(moment), event, stage) for moment, event, stage in lines if event not in ("said", "fault")]


def stage_at(trace: Path) -> str:
    """Where a process is now."""
    events = told(trace)
    if not events:
        return START
    _, event, stage = events[-1]
    return END if stage == "report" and event in ("made", "reused") else stage
