"""The server's one thread that samples and trains, and the answers by request id.

Jobs run in the order of arrival, except that waiting samples from the same weights are drawn together. A request that
is sent again, by its sequence number, is the same job.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from tasks.domain.policies import ServedAdapter
from tasks.engines.protocols import Generator, Request
from tasks.engines.tinker_server.checkpoints import Missing
from tasks.engines.tinker_server.wire import samples

#: Answers that are kept for clients that ask again.
KEPT_ANSWERS = 20_000
#: A binary body, or JSON.
Answer = bytes | dict[str, Any]


class Jobs:
    """The server's queue of jobs, the thread that runs them, and their answers."""

    def __init__(self, generator: Generator) -> None:
        self._generator, self._lock = generator, threading.Lock()
        self._answers: OrderedDict[str, Future[Answer]] = OrderedDict()
        self._sent = set[str]()
        self._waiting = defaultdict[ServedAdapter | None, list[tuple[Future[Answer], Sequence[Request]]]](list)
        # otherwise a new thread computes with all cores
        self._thread = ThreadPoolExecutor(1, "tinker", initializer=torch.get_num_threads)

    def submit(self, whose: str, number: int | None, start: Callable[[], Future[Answer]]) -> str:
        """Start a job and return its id. If a request with this number of this model or sampler was sent before, return
        the id of its job."""
        with self._lock:
            request = f"{whose}/{uuid.uuid4() if number is None else number}"
            if request in self._sent:
                return request
            self._answers[request] = start()
            if number is not None:
                self._sent.add(request)
            while len(self._answers) > KEPT_ANSWERS and next(iter(self._answers.values())).done():
                self._answers.popitem(last=False)
        return request

    def run(self, whose: str, number: int, keep: Callable[[], None], work: Callable[[], Answer]) -> str:
        """Queue a call. keep: writes the request to disk first, unless it is queued already."""

        def start() -> Future[Answer]:
            keep()
            return self._thread.submit(work)

        return self.submit(whose, number, start)

    def sample(self, whose: str, number: int | None, adapter: ServedAdapter | None, requests: Sequence[Request]) -> str:
        """Queue samples from these weights."""

        def start() -> Future[Answer]:
            answer: Future[Answer] = Future()
            self._waiting[adapter].append((answer, requests))
            self._thread.submit(self._draw, adapter)
            return answer

        return self.submit(whose, number, start)

    def answer(self, request: str) -> Future[Answer]:
        if request not in self._answers:
            raise Missing(f"no request {request}: this server was started after it")
        return self._answers[request]

    def close(self) -> None:
        """End the thread after the job in progress."""
        self._thread.shutdown(cancel_futures=True)

    def _draw(self, adapter: ServedAdapter | None) -> None:
        """Answer all waiting requests for samples from these weights."""
        with self._lock:
            waiting = self._waiting.pop(adapter, [])
        places = [(nth, one) for nth, (_, requests) in enumerate(waiting) for one in requests]
        asked = [Request(key, one.prompt_ids, one.seed, one.decoding) for key, (_, one) in enumerate(places)]
        try:
            drawn = sorted(self._generator.generate(asked, adapter), key=lambda one: one.key) if asked else []
        except Exception as error:  # the clients get it as their answer
            for answer, _ in waiting:
                answer.set_exception(error)
            return
        for nth, (answer, _) in enumerate(waiting):
            answer.set_result(samples([one for one in drawn if places[one.key][0] == nth]))
