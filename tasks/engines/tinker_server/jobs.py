"""The server's one thread that samples and trains, and the jobs that it works off.

Jobs run in the order of arrival, except that waiting samples from the same weights are drawn together. A request that
is sent again, by its sequence number, is the same job.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from tasks.domain.policies import ServedAdapter
from tasks.engines.protocols import Completion, Generator, Request
from tasks.engines.tinker_server.checkpoints import Missing
from tasks.engines.tinker_server.wire import samples

#: Answers that are kept for clients that ask again.
KEPT_ANSWERS = 20_000
#: A binary body, or JSON.
Answer = bytes | dict[str, Any]


@dataclass(slots=True, eq=False)
class Job:
    """Work to be done: a call, or requests to sample from weights. answer: its result or error."""

    run: Callable[[], Answer] | None = None
    adapter: ServedAdapter | None = None
    requests: Sequence[Request] = ()
    answer: Future[Answer] = field(default_factory=Future)


class Jobs:
    """The queue, its thread, and the answers by request id."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._sent: dict[tuple[str, int], str] = {}
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, whose: str, number: int | None, job: Job) -> str:
        """Queue a job and return its id; that of the first, if this number of this model or sampler was sent before."""
        with self._changed:
            if number is not None and (known := self._sent.get((whose, number))):
                return known
            request = str(uuid.uuid4())
            self._jobs[request] = job
            if number is not None:
                self._sent[whose, number] = request
            while len(self._jobs) > KEPT_ANSWERS and next(iter(self._jobs.values())).answer.done():
                self._jobs.popitem(last=False)
            self._queue.append(job)
            self._changed.notify()
        return request

    def answer(self, request: str) -> Future[Answer]:
        if request not in self._jobs:
            raise Missing(f"no request {request}: this server was started after it")
        return self._jobs[request].answer

    def close(self) -> None:
        """End after the job at work."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        torch.get_num_threads()  # otherwise a new thread computes with all cores
        while jobs := self._next():
            try:
                if jobs[0].run is not None:
                    jobs[0].answer.set_result(jobs[0].run())
                else:
                    for job, drawn in zip(jobs, self._drawn(jobs), strict=True):
                        job.answer.set_result(samples(drawn))
            except Exception as error:  # the client gets it as the answer
                for job in jobs:
                    if not job.answer.done():
                        job.answer.set_exception(error)

    def _next(self) -> list[Job]:
        """Return the next job, with all waiting ones that sample from the same weights; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed:
                return []
            first = self._queue.popleft()
            if first.run is not None:
                return [first]
            same = [one for one in self._queue if one.run is None and one.adapter == first.adapter]
            for one in same:
                self._queue.remove(one)
            return [first, *same]

    def _drawn(self, jobs: Sequence[Job]) -> list[list[Completion]]:
        """Return each job's completions, in order."""
        places = [(nth, request) for nth, job in enumerate(jobs) for request in job.requests]
        asked = [Request(key, one.prompt_ids, one.seed, one.decoding) for key, (_, one) in enumerate(places)]
        drawn = sorted(self._generator.generate(asked, jobs[0].adapter), key=lambda one: one.key)
        return [[one for one in drawn if places[one.key][0] == nth] for nth in range(len(jobs))]
