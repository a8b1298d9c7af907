"""Grading and keeping go on beside a streaming engine, in order, and lose nothing that was sampled."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from storage.errors import Parked
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.graders import Graders
from tasks.engines.protocols import Completion, Request
from tasks.engines.sampling import sampler
from tasks.engines.sampling.sampler import LiveSampling, RolloutRequest, Rows, SamplingStats


class Scripted:
    """An engine of known answers; `met` says that a batch was kept while the engine was still at work."""

    name, version, serving = "scripted", "1", "none"

    def __init__(self) -> None:
        self.kept_one, self.met = threading.Event(), False

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        return (1, 2)

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        assert isinstance(requests, deque)
        while requests:
            request = requests.popleft()
            if not requests:
                self.met = self.kept_one.wait(60)
            yield Completion(request.key, "<answer>4</answer>", [5, 6], np.zeros(2, np.float32), "stop")

    def close(self) -> None: ...


REQUESTED = [
    RolloutRequest(
        "p",
        "s",
        "2+2?",
        "4",
        i,
        Policy(arm="panel", model=BaseModel(name="m", sha256="0")),
        Sampling(max_tokens=8, seed=0),
        i,
    )
    for i in range(6)
]


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "FLUSH_ROWS", 2)
    monkeypatch.setattr(sampler, "FLUSH_SECONDS", 3600.0)


def live(
    engine: Scripted, graders: Graders, keep: Callable[[Rows], object], requested: Sequence[RolloutRequest] = REQUESTED
) -> SamplingStats:
    def kept(rows: Rows) -> Sequence[RolloutRequest]:
        keep(rows)
        return ()

    stats = SamplingStats()
    try:
        LiveSampling(engine, graders, kept, lambda asked, _: len(asked), stats, sampler.FLUSH_SECONDS).run(
            requested, None
        )
    finally:
        graders.close()
    return stats


def test_a_batch_is_kept_while_the_next_is_sampled() -> None:
    """The engine waits for the first batch before it ends: it would wait for ever if keeping waited for the engine."""
    engine, graders, kept = Scripted(), Graders(), list[int]()

    def keep(rows: Rows) -> None:
        kept.extend(want.rollout for want, _ in rows)
        assert all(row["correct"] for _, row in rows)
        engine.kept_one.set()

    stats = live(engine, graders, keep)
    assert engine.met and kept == [0, 1, 2, 3, 4, 5]
    assert (stats.rollouts, stats.tokens) == (6, 12)


def test_a_wall_stops_sampling_and_keeps_what_was_sampled_meanwhile() -> None:
    """The first batch meets the wall while the engine writes; what it has written by then is paid for."""
    engine, graders, kept = Scripted(), Graders(), list[int]()

    def keep(rows: Rows) -> None:
        kept.extend(want.rollout for want, _ in rows)
        engine.kept_one.set()
        raise Parked("the budget is spent")

    with pytest.raises(Parked, match="the budget is spent"):
        live(engine, graders, keep)
    assert kept == [0, 1, 2, 3, 4, 5]
