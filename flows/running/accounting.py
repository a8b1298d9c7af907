"""Accounting of a run: its record, its heartbeat, its spending, the budget limit at which it parks, and its Slurm jobs.

A run is identified by the report that it makes, so the same command with a larger budget continues the same run.
"""

import math
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flows.gate import ADVICE
from flows.running.costs import costs, total
from flows.running.fit import Machine, check_service, memory_lines, prompt_lines
from flows.running.plan import Planned, is_costly, looked_up, sampled_here
from flows.running.sessions import Charging, Listener, one_after_another
from flows.running.tracking import token, tracked, tracker_run
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Parked, Unreachable, UserError, disk_fault
from storage.leases import heartbeats
from storage.objects import impatient, patient
from storage.records.garbage import collecting
from storage.records.runs import Amounts, Run, earlier_attempt, note_planned, now, write_run
from storage.roots import root_option
from storage.stopping import stop_over_errors
from tasks.domain.budget import plainly
from tasks.engines.trackers import check_installed
from tasks.metering import Meter, metered, of_team
from tasks.stage import Progress


class Listeners(NamedTuple):
    """Receivers of a run's events. own: for stages that this process makes, whose cost it charges to the run. relayed:
    for stages of other processes, which charge the cost themselves."""

    own: Listener
    relayed: Listener


@dataclass(slots=True)
class Record:
    """The JSON file of a run. The run's thread and its heartbeat update it."""

    store: Store
    run: Run
    meter: Meter
    finished: set[Ref] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, **changes: object) -> None:
        """Write the record. The spending comes from the journal, because other workers of the run write to it too."""
        with self._lock:
            with suppress(Unreachable):
                changes = {"spent": self.meter.journal.spent(), **changes}
            self.run = self.run.model_copy(update={"heartbeat": now(), **changes})
            write_run(self.store.root, self.run)

    def on_progress(self, event: Progress) -> None:
        if event.event in ("made", "reused"):
            self.finished.add(event.ref)
        if event.event in ("made", "started"):
            self.update(at=event.title, stages_done=len(self.finished))


@contextmanager
def accounted(
    study: Study,
    store: Store,
    planned: Sequence[Planned],
    charging: Charging,
    listener: Listener,
    request: dict[str, object],
    flow_run: str | None = None,
) -> Iterator[Listeners]:
    """Run the block as one attempt of the study's run. Yield the listeners of the attempt.

    request: the request that starts the same run again (`varband resume`). If the run pauses, raise Parked with the
    progress, the missing budget and the command that resumes the run. Raise UserError, before anything is recorded, for
    a prompt that exceeds the context or a model that exceeds this machine's GPUs.
    """
    if is_costly(planned):
        list(memory_lines(study, Machine.here(), [one.sampling for one in sampled_here(planned)]))
        list(prompt_lines(study, store, planned))
    meter = charging.meter(study.profile.hardware, store)
    check_installed(study.profile.tracking)
    record = Record(store, _recorded(study, store, planned, charging, request, flow_run=flow_run), meter)
    record.update()
    of = tracker_run(study, store, record.run)
    try:
        with (
            tracked(study.profile.tracking, of, store, meter.journal.spent, listener) as followed,
            stop_over_errors(),
            patient(),
            heartbeats(record.update),
            metered(meter, followed) as charged,
        ):
            check_service(study, planned)
            yield Listeners(*(one_after_another(record.on_progress, each) for each in (charged, followed)))
        _check_left(study, store, planned)
    except Unreachable as away:
        with impatient(), suppress(Unreachable):  # it stays on this machine until the storage answers again
            record.update(state="parked", why=f"parked: {away}")
        raise
    except Parked as limit:
        with impatient():
            record.update(state="parked", **_parked(study, store, planned, meter, record.run, limit))
        raise Parked(record.run.why) from None
    except ArmsFailed as error:
        done = sum(p.reused for p in looked_up((p.step for p in planned), store, study.profile.hardware))
        why = f"{error}; {done} of {len(planned)} stages are made; the same command tries the rest again"
        record.update(state="failed", why=why, stages_done=done)
        raise ArmsFailed(why) from None
    except KeyboardInterrupt:
        record.update(state="interrupted", why="Ctrl-C was pressed")
        raise
    except BaseException as error:
        fault = str(error) if isinstance(error, UserError) else disk_fault(error)
        record.update(state="failed", why=fault or f"{type(error).__name__}: {error}"[:300])
        if fault and not isinstance(error, UserError):
            raise UserError(fault) from error
        raise
    report = str(planned[-1].step.ref)
    record.update(state="finished", why="", at="", stages_done=len(planned), report=report, missing=Amounts())


def _recorded(
    study: Study,
    store: Store,
    planned: Sequence[Planned],
    charging: Charging,
    request: dict[str, object],
    **fields: object,
) -> Run:
    """Return the record of a new attempt, and protect its planned artifacts from garbage collection."""
    name, meter = charging.run, charging.meter(study.profile.hardware, store)
    earlier = earlier_attempt(store.root, name)
    given: dict[str, object] = {
        "state": "running",
        "started": earlier.started if earlier else now(),
        "attempts": earlier.attempts + 1 if earlier else 1,
        "job": job_here(),
        "tracked_as": (earlier.tracked_as if earlier else "") or (token(name) if study.profile.tracking else ""),
    }
    with collecting(store.root, alone=False):
        note_planned(store.root, name, (p.step.ref for p in planned))
    return Run(
        id=name,
        profile=study.profile.called,
        changes=study.changes,
        request=request,
        stages=len(planned),
        stages_done=sum(p.reused for p in planned),
        spent=meter.spent,
        budget=meter.budget.limits(),
        heartbeat=now(),
        host=socket.gethostname(),
        pid=os.getpid(),
        **(given | fields),  # pyright: ignore[reportArgumentType]
    )


def _check_left(study: Study, store: Store, planned: Sequence[Planned]) -> None:
    """Raise Parked if every missing stage is left to another machine (`hardware.without`)."""
    without = study.profile.hardware.without
    if without and not store.fresh(planned[-1].step.ref):
        raise Parked(
            f"artifacts that need {' and '.join(without)} are left to another machine: copy their inputs there with"
            " `varband export study DIR --without weights`, and give the same command there without `--without`"
        )


def _parked(
    study: Study, store: Store, begun: Sequence[Planned], meter: Meter, run: Run, limit: Parked
) -> dict[str, object]:
    """Return the fields of a paused run's record: reason, command to resume, progress and missing amounts. begun: the
    plan at the start of the attempt."""
    planned = looked_up((p.step for p in begun), store, study.profile.hardware)
    done, missing = sum(p.reused for p in planned), total(costs(study, store, planned, meter.prices))
    how_far = f"{done} of {len(planned)} stages are done"
    if any(p.step.title == run.at and not p.reused for p in planned):  # otherwise the stage `run.at` is finished
        how_far += f", '{run.at}' is under way"
    resume = f"varband resume {run.id}{root_option(store.root)}"
    if str(limit).endswith(ADVICE):  # the gate paused the run, and no budget opens it
        why = f"parked: {limit}; `{resume} --anyway` trains all the same; {how_far}"
        return {"why": why, "missing": missing, "stages_done": done}
    limits, spent = meter.budget.limits(), meter.journal.spent()
    amounts = {n: getattr(missing, n) for n in limits or ("tokens",)}
    why = f"parked: {limit}; {how_far}"
    if any(amounts.values()):
        about = ", ".join(f"{plainly(amount, 2)} {n.replace('_', ' ')}" for n, amount in amounts.items())
        why += f"; about {about} more are missing"
    if limits and not of_team(limit):
        enough = {n: max(1.1 * (getattr(spent, n) + getattr(missing, n)), most) for n, most in limits.items()}
        budget = ",".join(f"{n}={_round_up(v):.12g}" for n, v in enough.items())
        why += f"; `{resume} --budget {budget}` or the same command with that budget resumes the run"
    return {"why": why, "missing": missing, "stages_done": done}


def _round_up(value: float) -> float:
    """Round up to two significant digits.

    >>> _round_up(123456.0), _round_up(0.0423)
    (130000.0, 0.043)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit) * unit:.3g}")


# Runs as jobs of Slurm: a job resumes a recorded run, so it may be requeued, pre-empted or submitted again.

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "deploy" / "slurm" / "study.sbatch"


def job_here() -> str | None:
    """Return the id of the Slurm job that this process belongs to; for a job array, the id of the array."""
    return os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")


def queue(
    study: Study, store: Store, planned: Sequence[Planned], charging: Charging, request: dict[str, object]
) -> Run:
    """Record and return a run that a job of a cluster will start by `varband resume`."""
    run = _recorded(study, store, planned, charging, request, state="queued")
    run = run.model_copy(update={"attempts": run.attempts - 1})
    write_run(store.root, run)
    return run


def slurm_jobs(run: str, root: Path, count: int, options: Sequence[str], **places: object) -> Iterator[list[str]]:
    """Yield the sbatch commands of one run in order; `{}` stands for the id of the previous job. count: number of jobs
    that share the run's pieces. If there are several, another job follows, which writes the report: it needs no GPU and
    runs in the cluster's default partition. options: those of every job. places: partition and GPUs of the others."""
    resume = [sys.executable, "-m", "varband", "resume", run, *shlex.split(root_option(root))]
    sbatch = ["sbatch", "--parsable", f"--job-name={run}", *options]
    work = [*sbatch, *(f"--{name}={value}" for name, value in places.items() if value)]
    if count == 1:
        yield [*work, str(SCRIPT), *resume]
        return
    yield [*work, f"--array=0-{count - 1}", str(SCRIPT), *resume, "--shared"]
    yield [*sbatch, "--dependency=afterok:{}", "--kill-on-invalid-dep=yes", str(SCRIPT), *resume]


def submit_jobs(commands: Iterable[Sequence[str]]) -> list[str]:
    """Return the ids of the submitted jobs. If sbatch fails, raise UserError with its message."""
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    ids: list[str] = []
    for words in commands:
        command = [word.format(*ids) if word.startswith("--dependency") else word for word in words]
        environment = {**os.environ, "PYTHONPATH": path}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise UserError("submit: this machine has no sbatch; submit from a login node of the cluster") from None
        except subprocess.CalledProcessError as error:
            raise UserError(f"submit: {error.stderr.strip()}") from None
        ids.append(done.stdout.strip().partition(";")[0])
    return ids
