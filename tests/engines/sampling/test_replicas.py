"""Two engines behind one: every request once, whichever runs it; what fails is said, and the next call goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.errors import Parked
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.replicas import ReplicatedGenerator

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
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
