"""Pieces of a study made by several processes: workers of this command, or commands that share a root.

One small model leaves most cores idle. A worker keeps its engine from one piece to the next. It ends with its parent,
however the parent ends; its artifacts and rollouts are kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from flows.running.pieces import Lost, Piece, dispatch, next_pieces, piece_in
from flows.running.sessions import Charging, Listener, stages_of
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Notice, Parked, UserError, as_user_error
from storage.leases import leases_of
from storage.objects import patient
from storage.stopping import deaf_children, stopped_by_signals, was_stopped
from tasks.engines.hardware import Hardware, children_see, release_memory, visible_gpus
from tasks.metering import metered
from tasks.stage import Progress, Session

#: Seconds in which a stopped process may finish its batch, pack or checkpoint; fewer after Ctrl-C, because the user
#: waits.
GRACE_SECONDS, GRACE_AFTER_CTRL_C = 30, 8


def make_pieces_at_once(study: Study, store: Store, charging: Charging, listener: Listener) -> None:
    """Make the costly pieces, `hardware.arms_at_once` at a time, and all that they need. With more processes than arms,
    several sample for one arm. A single process is started only on a GPU, for several arms with several seeds: it takes
    pieces by their turns, so that an interrupted study has the same seeds of all arms. listener: receives the events of
    all processes. Errors as for `dispatch`."""
    p = study.profile
    places = gpus_apart(p.hardware)[: len(p.arms) * max(1, len(p.seeds))]
    if len(places) == 1 and (p.hardware.device != "cuda" or len(p.arms) == 1 or len(p.seeds) <= 1):
        return
    with Processes(study, store.root, charging, places, listener) as workers:
        in_shards = len(places) > len(p.arms)
        wanted = partial(next_pieces, study, store, listener, in_shards=in_shards, no_more=workers.dismiss)
        dispatch(wanted, workers, _notify)


def _notify(message: str) -> None:
    warnings.warn(Notice(message), stacklevel=3)


def gpus_apart(hardware: Hardware) -> list[tuple[str, ...]]:
    """The GPUs visible to each parallel process, at least one entry; on a CPU the entries are empty."""
    if hardware.device != "cuda":
        return [()] * hardware.arms_at_once
    gpus, each = visible_gpus(), hardware.gpus
    apart = [tuple(gpus[i : i + each]) for i in range(0, len(gpus) - each + 1, each)]
    return apart[: hardware.arms_at_once] or [tuple(gpus)]


@dataclass(slots=True)
class _Worker:
    """A process and its visible GPUs. arm: arm of its newest piece, whose engine it holds. piece: None while idle."""

    process: BaseProcess
    gpus: tuple[str, ...]
    arm: str = ""
    piece: Piece | None = None


@dataclass(slots=True)
class Processes:
    """Processes that make pieces of a study, charged to its run. places: GPUs for one process each, not yet in use."""

    study: Study
    root: Path
    charging: Charging
    places: list[tuple[str, ...]]
    listener: Listener
    _running: dict[Connection, _Worker] = field(default_factory=dict)
    _waiting: list[Piece] = field(default_factory=list)

    def __enter__(self) -> Self:
        release_memory()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        left = [worker.process for worker in self._running.values() if worker.process.pid]
        if not error:
            self.dismiss()
        for process in left if error else ():
            process.terminate()
        grace = GRACE_AFTER_CTRL_C if isinstance(error, KeyboardInterrupt) else GRACE_SECONDS
        until = time.monotonic() + grace
        for process in left:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()

    def dismiss(self) -> None:
        """If all workers are idle, let them close their engines and end."""
        if all(worker.piece is None for worker in self._running.values()):
            for line in self._running:
                line.close()

    def begin(self, piece: Piece) -> None:
        """Send a piece to the process that holds its arm's engine, else to a new process, else to any idle one."""
        idle = [line for line, worker in self._running.items() if worker.piece is None]
        line = next((line for line in idle if self._running[line].arm == piece.arm), None)
        if line is None and self.places:
            line = self._new_worker(self.places.pop(0), piece.title)
        if line is None and not idle:
            self._waiting.append(piece)
            return
        line = line or idle[0]
        worker = self._running[line]
        worker.piece, worker.arm = piece, piece.arm or worker.arm
        with suppress(BrokenPipeError):  # it has just died, and its end is received next
            line.send(piece)

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        ended = []
        while not ended:
            for line in wait(list(self._running)):
                assert isinstance(line, Connection)
                ended += self._received(line)
        waiting, self._waiting = sorted(self._waiting, key=attrgetter("turn")), []
        for piece in waiting:
            self.begin(piece)
        yield from ended

    def _new_worker(self, gpus: tuple[str, ...], name: str) -> Connection:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), name=name)
        # known before it starts: a run that is stopped in between must end it too
        self._running[ours] = _Worker(process, gpus)
        with children_see(gpus), deaf_children():  # Ctrl-C reaches this process, which then sends them SIGTERM
            process.start()
        theirs.close()
        ours.send((self.study, self.root, self.charging))
        return ours

    def _received(self, line: Connection) -> list[tuple[Piece, UserError | None]]:
        """Return the piece that has ended, if any."""
        worker = self._running[line]
        try:
            message = line.recv()
        except (EOFError, ConnectionResetError):
            del self._running[line]
            worker.process.join()
            self.places.append(worker.gpus)
            code = worker.process.exitcode or 0
            lost = Lost(f"its process ended early (exit code {code}); the same command resumes it")
            error = lost if code < 0 else UserError("its process failed; its own error is above")
            return [(worker.piece, error)] if worker.piece else []
        if isinstance(message, Progress):
            self.listener(message)
            return []
        piece, worker.piece = worker.piece, None
        assert piece is not None
        return [(piece, message)]


def _work(line: Connection) -> None:
    """In a worker process, which it ends: make pieces until the pipe is closed; send every Progress, and for each piece
    None or its error."""
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    one_at_a_time = threading.Lock()

    def tell(message: Progress | UserError | None) -> None:
        with one_at_a_time:
            try:
                line.send(message)
            except OSError:  # nobody is there to read of it
                os._exit(1)

    with suppress(EOFError, Parked), stopped_by_signals(), patient():  # told to stop while it waits, it ends
        study, root, charging = line.recv()
        store = Store(root)
        with (
            metered(charging.meter(study.profile.hardware, store), tell) as charged,
            stages_of(study, store, charged) as current,
        ):
            while not was_stopped():
                piece: Piece = line.recv()
                try:
                    piece_in(current, study, store, piece.ref, piece.shard)
                    tell(None)
                except Exception as error:
                    tell(as_user_error(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # engines are closed and all is on disk; the end of an interpreter that loaded vLLM takes seconds more


def _end_with_the_starter() -> None:
    starter = parent_process()
    assert starter is not None
    wait([starter.sentinel])
    os._exit(1)


# Pieces shared by processes that see the same root: jobs of a cluster, or hosts with one bucket. No process leads.

POLL_SECONDS = 2.0
WAITING = "other processes make all that can be made now: waiting"


def share_pieces(study: Study, store: Store, listener: Listener) -> None:
    """Make the costly pieces that no other process makes, until all are made. Errors as for `dispatch`."""
    with stages_of(study, store, listener) as current:
        dispatch(partial(next_pieces, study, store, listener), Claims(current, study, store), _notify)


@dataclass(slots=True)
class Claims:
    """Makes pieces in this process, one at a time, while it holds the piece's lease. A lease is free when its holder is
    dead."""

    current: Session
    study: Study
    store: Store
    _open: list[Piece] = field(default_factory=list)

    def begin(self, piece: Piece) -> None:
        self._open.append(piece)

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        waited = False
        while True:
            for piece in self._open:
                with leases_of(self.store.root).claimed({f"piece-{piece.key}": ["whole"]}, wait=False) as mine:
                    if mine:
                        self._open.remove(piece)
                        yield piece, self._made(piece)
                        return
            if not waited:
                _notify(WAITING)
            waited = True
            time.sleep(POLL_SECONDS)

    def _made(self, piece: Piece) -> UserError | None:
        """Make a piece, or find that another process has made it; return its error. A stop is raised."""
        try:
            piece_in(self.current, self.study, self.store, piece.ref, piece.shard)
        except Exception as error:
            if was_stopped():
                raise
            return as_user_error(error)
        return None
