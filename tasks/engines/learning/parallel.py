"""Data parallelism of the learner: every process computes a share of a step's packs, and the gradients are summed.

The first process runs the study; it samples and writes. For each further GPU the first process starts another one,
which gets the job and every step's rollouts through a pipe. All processes run the same loop. The learner has its own
process group, because vLLM uses torch's default group. The group is formed through a store that any user of the machine
can reach, so nothing that is unpickled goes through it.
"""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch.distributed as dist
from torch import Tensor

from storage.errors import Parked
from tasks.engines.hardware import child

T = TypeVar("T")
#: Longest time to wait for the first process while it samples. If it dies, its store fails at once.
PATIENCE = timedelta(days=7)


@dataclass(slots=True)
class _Team:
    rank: int
    world: int
    store: Any
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: in the first process, a pipe to each other process; in another process, the pipe from the first one
    pipes: list[Connection] = field(default_factory=list)
    group: Any = None


_team: _Team | None = None


@contextmanager
def team(processes: int, job: object, logs: Path) -> Iterator[None]:
    """Start `processes - 1` other processes on this job, and stop them at the end. Only the first process starts
    others. Raise Parked if another process died; its output is in `logs`."""
    global _team
    if processes == 1 or _team is not None:
        yield
        return
    _team = _Team(0, processes, _store(0))
    others = _team.others
    try:
        for rank in range(1, processes):
            _start(rank, _team, logs / f"process-{rank}.log")
        from_first(job)
        yield
        for other in others:
            other.wait()
    except (RuntimeError, OSError) as error:
        if dead := [rank for rank, other in enumerate(others, 1) if _failed(other)]:
            raise Parked(
                f"process {dead[0]} of the learner ended early, see {logs / f'process-{dead[0]}.log'}; the same command"
                " resumes from the last step"
            ) from error
        raise
    finally:
        for other, pipe in zip(others, _team.pipes, strict=True):
            pipe.close()
            other.kill()
            other.wait()
        _team = None


def _failed(other: subprocess.Popen[bytes]) -> bool:
    """Return whether a process failed. The sockets of a process close a moment before it ends, so wait for its end."""
    try:
        return other.wait(timeout=1) != 0
    except subprocess.TimeoutExpired:
        return False


def _store(port: int) -> Any:
    """Return the first process's key-value store, or open it if the port is 0. The store listens on localhost only;
    torch's own socket would listen on all interfaces."""
    c10d: Any = dist
    how: dict[str, Any] = {"timeout": PATIENCE, "wait_for_workers": False}
    if port:
        return c10d.TCPStore("127.0.0.1", port, None, False, **how)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    return c10d.TCPStore("127.0.0.1", port, None, True, master_listen_fd=listening.detach(), **how)


def _start(rank: int, team: _Team, log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        other, pipe = child("tasks.engines.learning.learner", rank, team.world, team.store.port, log=out)
    team.others.append(other)
    team.pipes.append(pipe)


def join(device_type: str) -> None:
    """Form the process group for gradients. Every process calls this when it knows its device."""
    if _team is None or _team.group is not None:
        return
    if _team.rank:
        _team.store.set(f"here-{_team.rank}", "")
    while not _team.store.check([f"here-{rank}" for rank in range(1, _team.world)]):
        if any(other.poll() is not None for other in _team.others):
            raise RuntimeError("one of the learner's processes ended before it could take part")
        time.sleep(0.1)
    if device_type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        _team.group = dist.ProcessGroupNCCL(_team.store, _team.rank, _team.world, options)
    else:
        _team.group = dist.ProcessGroupGloo(_team.store, _team.rank, _team.world, PATIENCE)


def rank_and_world() -> tuple[int, int]:
    return (0, 1) if _team is None else (_team.rank, _team.world)


def reduced(tensor: Tensor, how: Literal["SUM", "MAX"]) -> Tensor:
    """Return the elementwise sum or maximum over all processes, in place."""
    if _team is not None:
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, how)
        _team.group.allreduce([tensor], options).wait()
    return tensor


def from_first(value: T | None) -> T:
    """Return the value of the first process in all processes. Other processes pass None."""
    if _team is not None and _team.rank:
        return _team.pipes[0].recv()
    for pipe in _team.pipes if _team is not None else ():
        pipe.send(value)
    return value  # type: ignore[return-value]


def join_team(rank: int, world: int, port: int, pipe: int) -> Any:
    """Become one of the learner's other processes, and return the job that the first process sent."""
    global _team
    _team = _Team(rank, world, _store(port), pipes=[Connection(pipe)])
    return from_first(None)
