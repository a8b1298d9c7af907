"""Two engines behind one: every request once, whichever runs it; what fails is said, and the next call goes on."""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest

from storage.errors import Parked
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling.replicas import Begin, Ended, ReplicatedGenerator, _Replica
from tests.tiny_model import DEMO

HARDWARE = Hardware(kv_cache_mb=64, max_model_len=128, max_num_seqs=4, threads=1, replicas=2)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def generator() -> Iterator[ReplicatedGenerator]:
    made = ReplicatedGenerator(DEMO, HARDWARE, 8)
    yield made
    made.close()
    assert all(one.process.returncode == 0 for one in made._replicas)


def asked(number: int, first: int = 0) -> list[Request]:
    return [Request(first + i, tuple(range(5, 25)), i, Decoding(max_tokens=8 + i % 9)) for i in range(number)]


def test_every_request_once_by_either(generator: ReplicatedGenerator) -> None:
    queue, done = deque(asked(12)), []
    seen = set()
    for completion in generator.generate(queue, None):
        seen |= {i for i, one in enumerate(generator._replicas) if one.at_work}
        done.append(completion)
        if len(done) == 6:
            queue.extend(asked(5, first=12))  # somebody wants more meanwhile
    assert sorted(c.key for c in done) == list(range(17)) and not queue
    assert seen == {0, 1}
    assert all(len(c.token_ids) <= 16 and len(c.logprobs_T) == len(c.token_ids) for c in done)


def test_a_call_that_is_given_up_leaves_nothing_behind(generator: ReplicatedGenerator) -> None:
    given_up: Any = generator.generate(asked(12), None)
    next(given_up)
    given_up.close()
    assert sorted(c.key for c in generator.generate(asked(3, first=100), None)) == [100, 101, 102]


def test_one_that_dies_parks_the_run() -> None:
    made = ReplicatedGenerator(DEMO, HARDWARE, 0)
    try:
        going = made.generate(asked(12), None)
        next(going)
        made._replicas[1].process.kill()
        with pytest.raises(Parked, match="replica ended early"):
            list(going)
    finally:
        made.close()


# A replica that is gone, whatever was about to be said to it; no engine is started.


def answers(pipe: Connection) -> None:
    """One token for every request, until the pipe is closed."""
    try:
        while True:
            said = pipe.recv()
            if isinstance(said, Request):
                pipe.send(Completion(said.key, "x", [1], np.zeros(1, np.float32), "stop"))
            elif not isinstance(said, Begin):
                pipe.send(Ended())
    except (EOFError, OSError):
        return


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_one_that_died_while_nothing_was_asked_parks_the_run(dead: int) -> None:
    """Between two steps, while their learner trains: what the next step says to it finds the pipe broken."""
    lines = [Pipe() for _ in range(3)]
    made = cast(Any, ReplicatedGenerator.__new__(ReplicatedGenerator))
    made._max_model_len, made._room = 64, 4
    made._replicas = [_Replica(cast(Any, None), ours) for ours, _ in lines]
    for _, theirs in lines:
        threading.Thread(target=answers, args=(theirs,), daemon=True).start()
    # more requests than room, and fewer than replicas
    for number in (20, 1, 0):
        assert sorted(c.key for c in made.generate(asked(number), None)) == list(range(number))
    made._replicas[dead].pipe, other_end = Pipe()
    other_end.close()
    for number in (20, 1):
        with pytest.raises(Parked, match="a sampling replica ended early"):
            list(made.generate(asked(number), None))


# An engine in processes of its own ends with the process that uses it, however that one ends.


USER = """
import sys, time
from pathlib import Path
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.vllm import VllmGenerator

if __name__ == "__main__":
    hardware = Hardware(max_model_len=256, max_num_seqs=8, threads=1, engine_process=sys.argv[2])
    engine = VllmGenerator(Path(sys.argv[1]), hardware, 0)
    print("up", flush=True)
    time.sleep(600)
"""


def started(folder: Path, where: str) -> subprocess.Popen[bytes]:
    program = folder / "user.py"
    program.write_text(USER)
    root = str(DEMO.parents[1])
    command = [sys.executable, str(program), str(DEMO), where]
    return subprocess.Popen(command, cwd=root, env=os.environ | {"PYTHONPATH": root}, stdout=subprocess.PIPE)


def processes_of(user: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(user.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["core", "both"])
def test_nothing_of_it_is_left_when_its_user_is_killed_while_it_starts(tmp_path: Path, where: str) -> None:
    """Stopped from outside before the engine is up: the process that holds the model has its name and reads weights."""
    holds = "VLLM::EngineCore" if where == "core" else "VLLM::Worker"
    with started(tmp_path, where) as user:
        while not any(p.name().startswith(holds) for p in processes_of(user)):
            assert user.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        engine = processes_of(user)
        user.kill()
    _, alive = psutil.wait_procs(engine, timeout=60)
    assert alive == []
