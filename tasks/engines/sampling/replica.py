"""One replica: a process that runs one vLLM engine, and ends with the pipe to the process that started it."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from storage.errors import Parked, UserError
from tasks.domain.policies import ServedAdapter
from tasks.engines.protocols import Generator, Request


@dataclass(frozen=True, slots=True)
class Begin:
    """A call of `generate`: requests follow, one by one, then null."""

    adapter: ServedAdapter | None


class Ended:
    """The replica has nothing left of a call."""


def main(pipe: Connection) -> None:
    """A replica: one call after the other, until the pipe is closed."""
    from tasks.engines.sampling.vllm import VllmGenerator

    model, hardware, lora_rank, kv_cache = pipe.recv()
    try:
        engine = VllmGenerator(model, hardware, lora_rank, kv_cache)
    except Exception as error:  # the starter's to raise
        pipe.send(_sendable(error))
        return
    pipe.send((engine.name, engine.version, engine.serving, engine.adapters))
    heard: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, heard), daemon=True).start()
    while isinstance(call := heard.get(), Begin):
        feed = _Feed(heard)
        try:
            _sample(engine, call.adapter, feed, pipe)
        except Exception as error:  # the starter's to raise
            pipe.send(_sendable(error))
        feed.drain()
        pipe.send(Ended())
    engine.close()


def _listen(pipe: Connection, heard: SimpleQueue[Any]) -> None:
    try:
        while True:
            heard.put(pipe.recv())
    except (EOFError, OSError):
        heard.put(Ended())


def _sample(engine: Generator, adapter: ServedAdapter | None, feed: _Feed, pipe: Connection) -> None:
    while feed.wait():
        for completion in engine.generate(feed, adapter):
            pipe.send(completion)
            if feed.over:
                return


class _Feed(deque[Request]):
    """What was heard of a call and not begun, as the queue that an engine empties. over: the call is; what is at work
    then is given up."""

    def __init__(self, heard: SimpleQueue[Any]) -> None:
        super().__init__()
        self._heard, self.over = heard, False

    def __bool__(self) -> bool:
        while not self._heard.empty():
            self._take()
        return len(self) > 0

    def wait(self) -> bool:
        """Until there is something to begin, or nothing more will come."""
        while not (len(self) or self.over):
            self._take()
        return len(self) > 0 and not self.over

    def drain(self) -> None:
        while not self.over:
            self._take()

    def _take(self) -> None:
        if isinstance(said := self._heard.get(), Request):
            self.append(said)
        else:
            self.over = True


def _sendable(error: Exception) -> Exception:
    """A sentence for the user is sent as it is. Others may not survive that: they go as their words, and are raised
    with the place where they came about."""
    if type(error) in (UserError, Parked):
        return error
    said = RuntimeError(f"{type(error).__name__}: {error}")
    said.add_note("in a sampling replica:\n" + "".join(traceback.format_exception(error)))
    return said


if __name__ == "__main__":
    from tasks.engines.sampling import replica  # what is pickled is of the module by its name

    replica.main(Connection(int(sys.argv[1])))
