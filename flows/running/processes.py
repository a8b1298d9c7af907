"""Pieces of a study made by several processes that share a root: workers of this command, jobs of a cluster, or hosts
with one bucket. Each process makes the pieces whose leases are free. The lease of a dead process is free.

With a small model, one process would leave most cores idle. A worker of this command ends with its parent, for whatever
reason the parent ends. The worker's artifacts and rollouts stay.
"""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from flows.running.accounting import Listeners
from flows.running.pieces import Piece, dispatch, make_piece, next_pieces
from flows.running.sessions import Charging, Listener, stages_of
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Notice, Parked, UserError, as_user_error
from storage.leases import leases_of
from storage.objects import patient
from storage.stopping import children_ignore, stopped_by_signals, was_stopped
from tasks.engines.hardware import Hardware, children_see, release_memory, visible_gpus
from tasks.metering import metered
from tasks.stage import Progress, Session

POLL_SECONDS = 0.5
WAITING = "waiting: other processes are making all pieces that can be made now"
#: Seconds that a stopped process may take to finish its batch, pack or checkpoint. After Ctrl-C there are fewer,
#: because the user waits.
GRACE_SECONDS, GRACE_AFTER_CTRL_C = 30, 8
#: A piece that failed in some process, and its error.
Failure = tuple[Piece, UserError]


def _notify(message: str) -> None:
    warnings.warn(Notice(message), stacklevel=3)


@dataclass(slots=True)
class Claims:
    """Makes pieces in this process, one after another, each while this process holds its lease. Pieces of an earlier
    turn come first, and within a turn those of the arm whose engine is loaded. elsewhere: returns the errors of pieces
    that failed in other processes, by key; they are not tried again. failed: gets each failure of this process. waits:
    gets why it waits."""

    current: Session
    hardware: Hardware
    elsewhere: Callable[[], Mapping[str, UserError]] = dict
    failed: Callable[[Failure], None] = lambda _: None
    waits: Callable[[str], None] = lambda _: None
    _open: list[Piece] = field(default_factory=list)
    _arm: str = ""

    def begin(self, piece: Piece) -> None:
        self._open.append(piece)

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        waited, leases = False, leases_of(self.current.store.root)
        while True:
            failed = self.elsewhere()
            for piece in sorted(self._open, key=lambda piece: (piece.turn, piece.arm != self._arm)):
                if piece.key in failed:
                    self._open.remove(piece)
                    yield piece, failed[piece.key]
                    return
                with leases.claimed({f"piece-{piece.key}": ["whole"]}, wait=False) as mine:
                    if mine:
                        self._open.remove(piece)
                        yield piece, self._made(piece)
                        return
            if not waited:
                self.waits(WAITING)
            waited = True
            time.sleep(max(POLL_SECONDS, leases.poll))

    def _made(self, piece: Piece) -> UserError | None:
        """Make a piece, unless another process has made it. Return the error of the piece. A stop is raised."""
        self._arm = piece.arm
        try:
            step = next(step for step in self.current.steps if step.ref == piece.ref)
            make_piece(self.current, step, piece.shard, self.hardware)
        except Exception as error:
            if was_stopped():
                raise
            failure = as_user_error(error)
            if not isinstance(failure, Parked):
                self.failed((piece, failure))
            return failure
        return None


def make(study: Study, store: Store, charging: Charging, listeners: Listeners, *, shared: bool = False) -> None:
    """Make all stages of a study. Processes of this command make `hardware.arms_at_once` costly stages at a time. With
    `shared`, this process makes them, together with other commands on the root. Raise errors as `dispatch` does."""
    p = study.profile
    places = gpus_apart(p.hardware)[: len(p.arms) * max(1, len(p.seeds))]
    if len(places) > 1 and not shared:
        with stages_of(study, store, listeners.own) as current:
            several = next_pieces(current, study, set())
        if several:
            _make_in_processes((study, store, charging, len(places) > len(p.arms)), places, listeners.relayed)
    with stages_of(study, store, listeners.own) as current:
        share(study, Claims(current, p.hardware, waits=_notify), _notify, in_shards=shared)


def share(study: Study, claims: Claims, tell: Callable[[str], None], *, in_shards: bool) -> None:
    """Make all stages that no other process makes. Raise errors as `dispatch` does."""
    with leases_of(claims.current.store.root).present():
        dispatch(partial(next_pieces, claims.current, study, in_shards=in_shards), claims, tell)


# ---- workers of this command


def _make_in_processes(given: object, places: Sequence[tuple[str, ...]], listener: Listener) -> None:
    """Start a worker process at each place, and wait until all pieces are made. If there are more workers than arms,
    several sample for one arm. If a worker was killed, another one makes its piece. Raise errors as `dispatch` does.
    given: arguments of the workers. listener: gets the events of all workers."""
    with _workers(given, places) as workers:
        errors = _watched(workers, listener)
    if errors:  # the worker that ends last knows all failures
        raise [*(error for error in errors if isinstance(error, Parked)), *reversed(errors)][0]


def gpus_apart(hardware: Hardware) -> list[tuple[str, ...]]:
    """Return the GPUs visible to each parallel process, at least one entry. On a CPU the entries are empty."""
    if hardware.device != "cuda":
        return [()] * hardware.arms_at_once
    gpus, each = visible_gpus(), hardware.gpus
    apart = [tuple(gpus[i : i + each]) for i in range(0, len(gpus) - each + 1, each)]
    return apart[: hardware.arms_at_once] or [tuple(gpus)]


@contextmanager
def _workers(given: object, places: Sequence[tuple[str, ...]]) -> Iterator[dict[Connection, BaseProcess]]:
    """Yield the worker processes of a study, by the connection to each. If the block raises an error, the workers are
    stopped. given: arguments of the workers. places: the GPUs visible to each."""
    release_memory()
    context, workers = get_context("spawn"), dict[Connection, BaseProcess]()
    try:
        for gpus in places:
            ours, theirs = context.Pipe()
            # it is listed before it starts, so that a stop in between ends it too
            process = workers[ours] = context.Process(target=_work, args=(theirs,))
            with children_see(gpus), children_ignore():  # only this process gets Ctrl-C, and then sends SIGTERM to them
                process.start()
            theirs.close()
        for line in workers:
            with suppress(BrokenPipeError):  # the worker has just died, which will be noticed next
                line.send(given)
        yield dict(workers)
    except BaseException as error:
        started = [process for process in workers.values() if process.pid]
        for process in started:
            process.terminate()
        until = time.monotonic() + (GRACE_AFTER_CTRL_C if isinstance(error, KeyboardInterrupt) else GRACE_SECONDS)
        for process in started:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()
        raise


def _watched(workers: Mapping[Connection, BaseProcess], listener: Listener) -> list[UserError]:
    """Wait for the workers to end, and return their errors."""
    at_work, errors = dict(workers), list[UserError]()
    while at_work:
        for line in wait(list(at_work)):
            assert isinstance(line, Connection)
            try:
                message = line.recv()
            except (EOFError, ConnectionResetError):
                process = at_work.pop(line)
                process.join()
                if code := process.exitcode:
                    _notify(f"a process ended early (exit code {code}); its piece is made by another")
                continue
            if isinstance(message, Progress):
                listener(message)
            elif isinstance(message, UserError):
                errors.append(message)
            else:
                _notify(f"{message[0].name} failed: {message[1]}")
                for other in at_work.keys() - {line}:
                    with suppress(BrokenPipeError):
                        other.send(message)
    return errors


def _work(line: Connection) -> None:
    """Make pieces in a worker process until all are made, and end it. Send every Progress and Failure, and the last
    error."""
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    one_at_a_time = threading.Lock()

    failed = dict[str, UserError]()

    def failed_elsewhere() -> Mapping[str, UserError]:
        while line.poll():
            piece, error = line.recv()
            failed[piece.key] = error
        return failed

    def tell(message: Progress | Failure | UserError) -> None:
        with one_at_a_time:
            try:
                line.send(message)
            except OSError:  # the parent process has ended
                os._exit(1)

    try:
        with suppress(EOFError), stopped_by_signals(), patient():
            study, store, charging, in_shards = line.recv()
            with (
                metered(charging.meter(study.profile.hardware, store), tell) as charged,
                stages_of(study, store, charged) as current,
            ):
                claims = Claims(current, study.profile.hardware, failed_elsewhere, tell)
                share(study, claims, lambda _: None, in_shards=in_shards)
    except Exception as error:
        tell(as_user_error(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # engines are closed and everything is on disk; ending an interpreter with vLLM would take seconds


def _end_with_the_starter() -> None:
    starter = parent_process()
    assert starter is not None
    wait([starter.sentinel])
    os._exit(1)
