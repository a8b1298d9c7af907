"""The progress of a run for experiment trackers: steps, evaluations, bands, summary, spending and a few completions.

This module listens to the events of a run. Each tracker has a process, which reads the artifacts that the events name,
and logs them. If a tracker fails or hangs, the run prints one sentence and continues.
"""

import queue
import re
import signal
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context, parent_process
from typing import Any

from flows.running.plan import Planned
from flows.running.sessions import Listener, one_after_another, silent
from flows.study.files import tables_of
from flows.study.reading import flat
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Notice
from storage.records.runs import Amounts, Run
from storage.stopping import children_ignore, was_stopped
from tasks.engines.trackers import Line, TrackerRun, check_installed, receive
from tasks.measures.curves import heldout_rows
from tasks.measures.groups import COLUMNS, count_groups
from tasks.stage import Progress

#: Most events that wait for a tracker. Further events are dropped.
QUEUED = 10_000
#: Seconds after which a tracker's process checks again whether the run has ended.
POLL_SECONDS = 5.0
#: Seconds that a run waits for a tracker at its end. After SIGTERM there are fewer, because the machine may go away.
GRACE_SECONDS, GRACE_WHEN_STOPPED = 60.0, 5.0
#: Rows of a table of completions, and characters of each text in it.
EXAMPLES, LONGEST = 4, 2_000
EVALUATED = re.compile(r"evaluate(?: by (?P<objective>\S+))? .*\((?P<plans>.+), \d+ each\)")
BENCHMARK = re.compile(r"(?P<benchmark>\S+): ")
STUDY = "study"


def token(run: str) -> str:
    """Return the name of a new group of tracker runs for a run of the store."""
    return f"{run}-{uuid.uuid4().hex[:6]}"


def tracker_run(study: Study, store: Store, run: Run) -> TrackerRun:
    """Return the project, group, folder and configuration that all tracker runs of one run share."""
    limits = {f"budget.{name}": value for name, value in run.budget.items()}
    config = {"model": study.model_names, **dict(flat(tables_of(study.profile))), **limits}
    project = run.profile.replace("/", "-")  # W&B does not allow the slash in a question's name
    return TrackerRun(project, run.tracked_as, store.root / "tracking", config)


@contextmanager
def _follower(name: str, of: TrackerRun, store: Store, spent: Callable[[], Amounts]) -> Iterator[Listener]:
    """Yield a listener that sends events to one tracker while its process lives and is fast enough."""
    context = get_context("spawn")
    events: Any = context.Queue(QUEUED)
    process = context.Process(target=_follow, args=(events, name, of, store, spent), daemon=True)
    with children_ignore(signal.SIGTERM):  # Slurm and systemd send SIGTERM to every process of a run
        process.start()

    def on_progress(event: Progress) -> None:
        if event.event in ("advanced", "made", "reused") and process.is_alive():
            with suppress(queue.Full):  # the steps of a training are sent again when the training is complete
                events.put_nowait(event)

    try:
        yield on_progress
    finally:
        grace, why = GRACE_WHEN_STOPPED if was_stopped() else GRACE_SECONDS, ""
        with suppress(queue.Full):
            events.put_nowait(None)
        process.join(grace)
        if process.is_alive():
            process.kill()
            why = f"did not finish within {grace:.0f} s"
        elif (code := process.exitcode or 0) < 0:  # a signal killed it, so it printed no reason
            why = f"was ended by signal {-code}"
        events.cancel_join_thread()
        if why:
            again = f"varband export track {of.group.rpartition('-')[0]} --track {name}"
            notice = f"tracker {name} {why}; the run continues without it ({again} sends it again)"
            warnings.warn(Notice(notice), stacklevel=2)


def _follow(events: Any, name: str, of: TrackerRun, store: Store, spent: Callable[[], Amounts]) -> None:
    """Log the events until the run ends. This runs in a tracker's process."""
    receive((line for event in _received(events) for line in _lines(store, event, spent)), name, of)


def _received(events: Any) -> Iterator[Progress]:
    run = parent_process()
    while run is not None:
        try:
            event = events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            if run.is_alive():
                continue
            return
        if event is None:
            return
        yield event


def _lines(store: Store, event: Progress, spent: Callable[[], Amounts]) -> Iterator[Line]:
    if event.values:
        values = {f"train/{name}": value for name, value in event.values.items()}
        costs = {f"spent/{name}": value for name, value in spent().model_dump().items()}
        yield Line(event.title.removeprefix("train "), event.done, values | costs, shortened(event.examples))
    elif event.event in ("made", "reused"):
        # send all steps of a training again, because before a crash the last one may have been stored but not sent
        yield from lines_of(store, event.ref, event.title)


def lines_of(store: Store, ref: Ref, title: str) -> Iterator[Line]:
    """Yield the lines that trackers get for a stored artifact. Most kinds have none."""
    if ref.kind == "training":
        for row in store.read(ref).to_pylist():
            values = {f"train/{name}": value for name, value in numbers(row).items()}
            yield Line(title.removeprefix("train "), row["step"], values)
    elif ref.kind == "bands":
        counts = Counter(f"bands/{row['arm']}/{row['band']}" for row in store.read(ref, ["arm", "band"]).to_pylist())
        yield Line(STUDY, 0, {name: float(n) for name, n in counts.items()})
    elif ref.kind == "rollouts" and (match := EVALUATED.match(title) or BENCHMARK.match(title)):
        yield from _evaluation(store, ref, match.groupdict())
    elif ref.kind == "report":
        for row in store.read(ref).to_pylist():
            where = f"summary/{row['arm']}" + (f"/seed {row['seed']}" if row["seed"] is not None else "")
            yield Line(STUDY, 0, {f"{where}/{name}": value for name, value in numbers(row).items()})


def _evaluation(store: Store, ref: Ref, found: Mapping[str, str | None]) -> Iterator[Line]:
    """Yield the accuracy of a policy with its interval over problems, and completions of the first problems."""
    plans, by = found.get("plans") or "", found.get("objective")
    what = found.get("benchmark") or ("heldout" if "curve" in plans else f"heldout_{plans.partition(' ')[0]}")
    groups = count_groups(store.read(ref, COLUMNS))
    seed = groups["seed"][0].as_py()
    rows = heldout_rows(groups.append_column("cluster", groups["problem_id"]))
    [whole] = [row for row in rows if row["source"] == "all"]
    accuracy = {"accuracy": whole["estimate"], "accuracy_low": whole["low"], "accuracy_high": whole["high"]}
    values = {f"{what}/{name}": value for name, value in accuracy.items() if value is not None}
    columns = ["problem_id", "rollout", "completion", "answer", "verdict"]
    shown = [row for row in store.read(ref, columns).to_pylist() if row["rollout"] == 0]
    name = f"{whole['arm']} seed {seed}" + (f" by {by}" if by else "")
    yield Line(name, whole["step"], values, shortened(shown))


def shortened(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the first rows of a table of completions, with long texts shortened."""
    return [
        {name: value[:LONGEST] if isinstance(value, str) else value for name, value in row.items()}
        for row in rows[:EXAMPLES]
    ]


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """
    >>> numbers({"arm": "panel", "seed": 0, "step": 3, "loss": 0.5, "kl_start": None})
    {'loss': 0.5}
    """
    kept = ((name, value) for name, value in row.items() if name not in ("seed", "step"))
    return {name: float(value) for name, value in kept if isinstance(value, int | float)}


@contextmanager
def tracked(
    names: Sequence[str], of: TrackerRun, store: Store, spent: Callable[[], Amounts], listener: Listener = silent
) -> Iterator[Listener]:
    """Yield a listener that passes events to `listener` and to trackers. Raise UserError if a package is missing."""
    check_installed(names)
    with ExitStack() as stack:
        yield one_after_another(listener, *(stack.enter_context(_follower(name, of, store, spent)) for name in names))


def send_finished(names: Sequence[str], of: TrackerRun, store: Store, planned: Sequence[Planned]) -> int:
    """Send the stored artifacts of a plan to trackers, and return their number."""
    there = [p.step for p in planned if p.reused]
    with tracked(names, of, store, Amounts) as listener:
        for step in there:
            listener(Progress("reused", step.title, step.ref))
    return len(there)
