"""A replica that is gone, whatever was about to be said to it; no engine is started."""

from __future__ import annotations

import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

import numpy as np
import pytest

from storage.errors import Parked
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling.replicas import Begin, Ended, ReplicatedGenerator, _Replica


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


def asked(number: int) -> list[Request]:
    return [Request(i, (5, 6), i, Decoding(max_tokens=1)) for i in range(number)]


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
