"""A run as people account for it: its record, its heartbeat, its spending, and the wall at which it parks.

A run is identified by the report that it makes, so the same command with a larger budget is the same run going on.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from flows.gate import ADVICE
from flows.running.costs import costs, total
from flows.running.fit import check_fit, check_room, longest_prompts, summary
from flows.running.plan import Planned, is_costly, looked_up, to_sample
from flows.running.sessions import Charging, Listener
from flows.study.memory import Machine, check_memory
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Parked, Unreachable, UserError, disk_fault
from storage.leases import beating
from storage.objects import impatient, patient
from storage.records.garbage import collecting
from storage.records.notes import note_planned
from storage.records.runs import Amounts, Run, earlier_attempt, now, write_run
from storage.roots import root_option
from tasks.metering import Meter, metered, of_team
from tasks.stage import Progress


@dataclass(frozen=True, slots=True)
class Listeners:
    """own: for what this process makes, which is charged to the run; relayed: for processes that charge themselves."""

    own: Listener
    relayed: Listener


@dataclass(slots=True)
class Record:
    """The run's JSON file, kept current by the run's thread and by its heartbeat."""

    store: Store
    run: Run
    meter: Meter
    finished: set[Ref] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, **changes: object) -> None:
        """What was spent is read from the journal: other workers of the run have charged to it too."""
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

    def before(self, listener: Listener) -> Listener:
        def on_progress(event: Progress) -> None:
            self.on_progress(event)
            listener(event)

        return on_progress


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
    """Run the block as one attempt of the study's run. Yields the listeners to run it with.

    request: what asks for the same run again (`varband resume`).
    Errors: Parked with how far it came, how much is missing and how to go on; UserError, before anything is noted, for
    models that do not fit onto this machine's GPUs, and trainings that its disk does not hold.
    """
    if is_costly(planned):
        check_memory(study, Machine.here(), to_sample(planned))
        check_room(study, store, planned)
        longest = longest_prompts(study, store, planned)
        check_fit(longest, study.profile.hardware.max_model_len)
        if longest:
            words = summary(longest, study.profile.hardware.max_model_len)
            listener(Progress("noted", "prompts", planned[-1].step.ref, detail=words))
    name, meter = charging.run, charging.meter(study, store)
    earlier = earlier_attempt(store.root, name)
    record = Record(store, _begun(earlier, name, study, planned, meter, request, flow_run), meter)
    with collecting(store.root, alone=False):
        note_planned(store.root, name, (p.step.ref for p in planned))
        record.update()
    try:
        with patient(), beating(record.update), metered(meter, listener) as charged:
            yield Listeners(record.before(charged), record.before(listener))
        _check_left(study, store, planned)
    except Unreachable as away:
        with impatient(), suppress(Unreachable):  # the record of this machine, until storage is back
            record.update(state="parked", why=f"parked: {away}")
        raise
    except Parked as wall:
        with impatient():
            how = _parked(study, store, planned, meter, record.run, wall)
            record.update(state="parked", **how)
        raise Parked(record.run.why) from None
    except ArmsFailed as error:
        done = sum(p.reused for p in looked_up((p.step for p in planned), store, study.profile.hardware))
        why = f"{error}; {done} of {len(planned)} stages are made; the same command tries the rest again"
        record.update(state="failed", why=why, stages_done=done)
        raise ArmsFailed(why) from None
    except UserError as error:
        record.update(state="failed", why=str(error))
        raise
    except KeyboardInterrupt:
        record.update(state="interrupted", why="Ctrl-C was pressed")
        raise
    except BaseException as error:
        fault = disk_fault(error)
        record.update(state="failed", why=fault or f"{type(error).__name__}: {error}"[:300])
        if fault:
            raise UserError(fault) from error
        raise
    record.update(
        state="finished", why="", at="", stages_done=len(planned), report=str(planned[-1].step.ref), missing=Amounts()
    )


def _check_left(study: Study, store: Store, planned: Sequence[Planned]) -> None:
    """Errors: Parked if the study was told to leave stages for another machine, and has come to them."""
    without = study.profile.hardware.without
    if without and not store.fresh(planned[-1].step.ref):
        raise Parked(
            f"what needs {' and '.join(without)} is left for another machine: `varband export study DIR --without"
            " weights` takes along what it needs, and there the same command goes on without `--without`"
        )


def _begun(
    earlier: Run | None,
    name: str,
    study: Study,
    planned: Sequence[Planned],
    meter: Meter,
    request: dict[str, object],
    flow_run: str | None,
) -> Run:
    return Run(
        id=name,
        profile=study.profile.called,
        changes=study.changes,
        request=request,
        state="running",
        stages=len(planned),
        stages_done=sum(p.reused for p in planned),
        spent=meter.spent,
        budget=meter.budget.limits(),
        started=earlier.started if earlier else now(),
        heartbeat=now(),
        host=socket.gethostname(),
        pid=os.getpid(),
        attempts=earlier.attempts + 1 if earlier else 1,
        flow_run=flow_run,
    )


def _parked(
    study: Study, store: Store, begun: Sequence[Planned], meter: Meter, run: Run, wall: Parked
) -> dict[str, object]:
    """Of the record: why, with how far, how much is missing and what goes on, and the same in numbers.

    begun: the plan as it was when the attempt began.
    """
    planned = looked_up((p.step for p in begun), store, study.profile.hardware)
    left = total(costs(study, store, planned, meter.prices))
    done = sum(p.reused for p in planned)
    spent, missing = meter.journal.spent(), left.amounts()
    limits = meter.budget.limits()
    enough = {n: max((getattr(spent, n) + getattr(missing, n)) * 1.1, limit) for n, limit in limits.items()}
    at_work = any(p.step.title == run.at and not p.reused for p in planned)  # else it is the last that was made
    how_far = f"{done} of {len(planned)} stages are done" + (f", '{run.at}' is under way" if at_work else "")
    asked = ",".join(f"{n}={_round_up(v):.12g}" for n, v in enough.items())
    about = ", ".join(f"{_rounded(getattr(missing, n))} {n.replace('_', ' ')}" for n in limits or ("tokens",))
    command = f"varband resume {run.id}{root_option(store.root)}"
    if str(wall).endswith(ADVICE):  # the gate's: more budget opens nothing
        why = f"parked: {wall}; `{command} --anyway` trains all the same; {how_far}"
        return {"why": why, "missing": missing, "stages_done": done}
    command += f" --budget {asked}"
    onward = f"; `{command}` or the same command with that budget goes on"
    mine = limits and not of_team(wall)
    why = f"parked: {wall}; {how_far}; about {about} more are missing{onward if mine else ''}"
    return {"why": why, "missing": missing, "stages_done": done}


def _rounded(value: float) -> str:
    """
    >>> _rounded(1_382_400.0), _rounded(0.0)
    ('1,400,000', '0')
    """
    return f"{_round_up(value):,.12g}" if value else "0"


def _round_up(value: float) -> float:
    """Two significant digits, upward.

    >>> _round_up(123456.0), _round_up(0.0423)
    (130000.0, 0.043)
    """
    import math

    if value <= 0:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit) * unit:.3g}")
