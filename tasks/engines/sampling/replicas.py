"""Several engines of one model, each on its own GPUs. A request goes to the engine with the least work.

A replica is a process that runs one vLLM engine. A replica ends when the pipe to its parent process closes.
"""

import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from storage.errors import Parked, UserError
from tasks.domain.policies import KVCache, ServedAdapter
from tasks.engines.hardware import Hardware, check_gpus, child, children_see, quiet_libraries, visible_gpus
from tasks.engines.model_files import tokenizer_of
from tasks.engines.protocols import Completion, Request
from tasks.engines.sampling.prompts import PromptEncoder, check_lengths
from tasks.engines.sampling.vllm import sampler_gpus

#: Seconds between two looks at a queue that another thread fills.
POLL_SECONDS = 0.05
_GONE = "a sampling replica ended early, see its output above; the same command resumes the run"


@dataclass(slots=True, eq=False)
class _Replica:
    process: subprocess.Popen[bytes]
    pipe: Connection
    at_work: set[int] = field(default_factory=set)

    def send(self, message: object) -> None:
        """Send a message. Raise Parked if the replica has ended."""
        try:
            self.pipe.send(message)
        except OSError as error:
            raise Parked(_GONE) from error

    def receive(self) -> Any:
        """Return the next answer, or raise the replica's error. Raise Parked if the replica has ended."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise Parked(_GONE) from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def finish(self) -> None:
        """Abort requests in progress, because the call that made them has ended."""
        with suppress(EOFError, OSError):  # `receive` reports it
            self.pipe.send(None)
            while not isinstance(self.pipe.recv(), Ended):
                pass
        self.at_work.clear()


class ReplicatedGenerator(PromptEncoder):
    def __init__(self, model: Path, hardware: Hardware, lora_rank: int, kv_cache: KVCache = "full") -> None:
        quiet_libraries()
        self._tokenizer = tokenizer_of(model)
        self._max_model_len, self._room = hardware.max_model_len, hardware.max_num_seqs
        alone = replace(hardware, replicas=1, sampler_apart=False)
        self._replicas: list[_Replica] = []
        try:
            for gpus in _shares(hardware):
                with children_see(gpus):
                    self._replicas.append(_Replica(*child(__name__)))
                self._replicas[-1].send((model, alone, lora_rank, kv_cache))
            self.name, self.version, self.serving, self.adapters = self._replicas[0].receive()
            for other in self._replicas[1:]:
                other.receive()
        except BaseException:
            self.close()
            raise
        self.serving += f", {len(self._replicas)} replicas"

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        check_lengths([*requests], self._max_model_len)
        queue = requests if isinstance(requests, deque) else deque(requests)
        try:
            for one in self._replicas:
                one.send(Begin(adapter))
            while queue or any(one.at_work for one in self._replicas):
                self._hand_out(queue)
                for pipe in wait([one.pipe for one in self._replicas if one.at_work], POLL_SECONDS):
                    one = next(one for one in self._replicas if one.pipe is pipe)
                    completion = one.receive()
                    one.at_work.remove(completion.key)
                    yield completion
        finally:
            for one in self._replicas:
                one.finish()

    def _hand_out(self, queue: deque[Request]) -> None:
        """Send requests to the replica with the least work, while a replica has room."""
        while queue:
            least = min(self._replicas, key=lambda one: len(one.at_work))
            if len(least.at_work) >= self._room:
                return
            request = queue.popleft()
            least.at_work.add(request.key)
            least.send(request)

    def close(self) -> None:
        for one in self._replicas:
            one.pipe.close()
        for one in self._replicas:
            try:
                one.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                one.process.kill()


def _shares(hardware: Hardware) -> list[list[str]]:
    """Return the GPUs of each replica, or none on a machine without GPUs. Raise UserError if there are too few GPUs."""
    import torch

    if not torch.cuda.is_available():
        return [[] for _ in range(hardware.replicas)]
    gpus, each = sampler_gpus(hardware), hardware.tensor_parallel
    check_gpus(hardware, len(visible_gpus()))
    return [gpus[i * each : (i + 1) * each] for i in range(hardware.replicas)]


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a call of `generate`. The requests of the call follow one by one, and then None."""

    adapter: ServedAdapter | None


class Ended:
    """The replica has finished a call."""


def main(pipe: Connection) -> None:
    """Run a replica: one call after another, until the pipe closes."""
    from tasks.engines.sampling.vllm import VllmGenerator

    model, hardware, lora_rank, kv_cache = pipe.recv()
    try:
        engine = VllmGenerator(model, hardware, lora_rank, kv_cache)
    except Exception as error:  # sent to the parent process, which raises it
        pipe.send(_sendable(error))
        return
    pipe.send((engine.name, engine.version, engine.serving, engine.adapters))
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    while isinstance(call := inbox.get(), Begin):
        feed = _Feed(inbox)
        try:
            while feed.wait():
                for completion in engine.generate(feed, call.adapter):
                    pipe.send(completion)
                    if feed.over:
                        break
        except Exception as error:  # sent to the parent process, which raises it
            pipe.send(_sendable(error))
        while not feed.over:
            feed.take()
        pipe.send(Ended())
    engine.close()


def _listen(pipe: Connection, inbox: SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(pipe.recv())
    except (EOFError, OSError):
        inbox.put(Ended())


class _Feed(deque[Request]):
    """The queue of requests of one call, which the pipe fills and the engine empties. over: the call has ended, and
    running requests are aborted."""

    def __init__(self, inbox: SimpleQueue[Any]) -> None:
        super().__init__()
        self._inbox, self.over = inbox, False

    def __bool__(self) -> bool:
        while not self._inbox.empty():
            self.take()
        return len(self) > 0

    def wait(self) -> bool:
        """Wait for a request. Return False if no more will come."""
        while not (len(self) or self.over):
            self.take()
        return len(self) > 0 and not self.over

    def take(self) -> None:
        if isinstance(inbox := self._inbox.get(), Request):
            self.append(inbox)
        else:
            self.over = True


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled: UserError and Parked unchanged, others as RuntimeError with traceback."""
    if type(error) in (UserError, Parked):
        return error
    words = RuntimeError(f"{type(error).__name__}: {error}")
    words.add_note("in a sampling replica:\n" + "".join(traceback.format_exception(error)))
    return words


if __name__ == "__main__":
    from tasks.engines.sampling import replicas  # because pickled classes need the module's import name

    replicas.main(Connection(int(sys.argv[1])))
