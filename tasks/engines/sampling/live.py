"""Sampling that goes on as it is asked for more: what is kept may want further rollouts, and the engine takes them up
while it works on those that it has, so that none waits for another."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from threading import Condition

from storage.errors import Parked
from tasks.domain.policies import ServedAdapter
from tasks.engines.grading.graders import Graders
from tasks.engines.protocols import Completion, Generator, Request
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats, request_of, rows_of

#: What ended waits so long for others to be made durable with.
LINGER_SECONDS = 0.1
Rows = list[tuple[RolloutRequest, dict[str, object]]]


class LiveSampling:
    """keep: makes rows durable and returns what is wanted next. admit: how many of these requests, from the first, may
    be sampled now; those at work are the first."""

    def __init__(
        self,
        generator: Generator,
        graders: Graders,
        keep: Callable[[Rows], Sequence[RolloutRequest]],
        admit: Callable[[Sequence[RolloutRequest], Sequence[Request]], int],
        stats: SamplingStats,
    ) -> None:
        self._generator, self._graders, self._keep, self._admit, self._stats = generator, graders, keep, admit, stats
        self._asked: list[RolloutRequest] = []
        self._requests: list[Request] = []
        self._held: deque[int] = deque()
        self._at_work: dict[int, None] = {}
        self._feed: deque[Request] = deque()
        self._changed = Condition()

    def run(self, first: Sequence[RolloutRequest], adapter: ServedAdapter | None) -> None:
        """Until nothing more is wanted. What ended before something failed is kept."""
        self._ask(first)
        ended: SimpleQueue[Completion | None] = SimpleQueue()
        with ThreadPoolExecutor(1) as thread:
            keeping = thread.submit(copy_context().run, self._keep_all, ended)
            try:
                self._sample(adapter, ended, keeping)
            finally:
                ended.put(None)
                keeping.result()

    def _sample(
        self, adapter: ServedAdapter | None, ended: SimpleQueue[Completion | None], keeping: Future[None]
    ) -> None:
        while self._at_work and not keeping.done():
            for completion in self._generator.generate(self._feed, adapter):
                ended.put(completion)
                if keeping.done():
                    return
            with self._changed:  # what ended last may want more
                self._changed.wait_for(lambda: self._feed or not self._at_work or keeping.done(), timeout=1.0)

    def _keep_all(self, ended: SimpleQueue[Completion | None]) -> None:
        """In a thread of its own: an engine that waits for graders and files is idle."""
        while (one := ended.get()) is not None:
            time.sleep(LINGER_SECONDS)
            some, last = [one], False
            while not ended.empty() and not last:
                if (one := ended.get()) is None:
                    last = True
                else:
                    some.append(one)
            rows = rows_of(some, self._asked, self._requests, self._generator, self._graders, self._stats)
            more = self._keep(rows)
            with self._changed:
                for completion in some:
                    del self._at_work[completion.key]
                self._ask(more)
                self._changed.notify()
            if last:
                return

    def _ask(self, wanted: Sequence[RolloutRequest]) -> None:
        """Hand on what may be sampled now. Errors: Parked where nothing may, and nothing is at work."""
        for one in wanted:
            self._held.append(len(self._asked))
            self._requests.append(request_of(len(self._asked), one, self._generator, self._stats))
            self._asked.append(one)
        if not self._held:
            return
        keys = [*self._at_work, *self._held]
        try:
            admitted = self._admit([self._asked[k] for k in keys], [self._requests[k] for k in keys])
        except Parked:
            if self._at_work:
                return
            raise
        for key in keys[len(self._at_work) : admitted]:
            self._at_work[key] = None
            self._feed.append(self._requests[key])
            self._held.popleft()
