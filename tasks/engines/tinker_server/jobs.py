"""The server's one thread that samples and trains, its answers, and binary bodies (batches in, samples and losses out).

Jobs run in the order of arrival, but samples from the same weights that are waiting are sampled together. A request
that is sent again, with the same sequence number, is the same job.
"""

import threading
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import zstandard  # pyright: ignore[reportMissingImports]
from tinker.proto import tinker_public_pb2 as pb  # pyright: ignore[reportMissingImports]

from storage.errors import UserError
from tasks.domain.policies import ServedAdapter
from tasks.engines.protocols import Completion, Generator, Request
from tasks.engines.tinker_server.checkpoints import Missing
from tasks.engines.tinker_server.learner import Datum

#: Number of answers that are kept for clients that ask again.
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
        # without get_num_threads a new thread computes with all cores
        self._thread = ThreadPoolExecutor(1, "tinker", initializer=torch.get_num_threads)

    def submit(self, whose: str, number: int | None, start: Callable[[], Future[Answer]]) -> str:
        """Start a job and return its id. For a number that was sent before, return the id of that job."""
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
        """Queue a call. keep: writes the request to disk, before it is queued for the first time."""

        def start() -> Future[Answer]:
            keep()
            return self._thread.submit(work)

        return self.submit(whose, number, start)

    def sample(self, whose: str, number: int | None, adapter: ServedAdapter | None, requests: Sequence[Request]) -> str:
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
        self._thread.shutdown(cancel_futures=True)

    def _draw(self, adapter: ServedAdapter | None) -> None:
        """Answer all waiting requests for samples from these weights."""
        with self._lock:
            waiting = self._waiting.pop(adapter, [])
        places = [(nth, one) for nth, (_, requests) in enumerate(waiting) for one in requests]
        asked = [Request(key, one.prompt_ids, one.seed, one.decoding) for key, (_, one) in enumerate(places)]
        try:
            drawn = sorted(self._generator.generate(asked, adapter), key=lambda one: one.key) if asked else []
        except Exception as error:  # the clients get the error as their answer
            for answer, _ in waiting:
                answer.set_exception(error)
            return
        for nth, (answer, _) in enumerate(waiting):
            answer.set_result(samples([one for one in drawn if places[one.key][0] == nth]))


TYPES = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}
#: Bytes of the largest batch after decompression.
MOST_BYTES = 1 << 30


def read_batch(body: bytes, encoding: str | None) -> tuple[pb.ForwardBackwardRequest, list[Datum], dict[str, float]]:
    """Read a body of forward_backward: message, sequences, settings of the loss. encoding: Content-Encoding."""
    if encoding == "zstd":
        body = zstandard.ZstdDecompressor().decompress(body, max_output_size=MOST_BYTES)
    message = pb.ForwardBackwardRequest.FromString(body)
    settings = {**message.loss_fn_config, **{name: value.number for name, value in message.loss_fn_config_v2.items()}}
    return message, [_datum(datum) for datum in message.data], settings


def _datum(message: pb.Datum) -> Datum:
    if any(chunk.WhichOneof("chunk") != "encoded_text" for chunk in message.model_input):
        raise UserError("this server reads only text, not images or sound")
    tokens_T = np.concatenate([np.frombuffer(c.encoded_text.tokens, np.int32) for c in message.model_input])
    inputs = {name: _array(name, tensor) for name, tensor in message.loss_fn_inputs.items()}
    targets_T = inputs.pop("target_tokens", None)
    if targets_T is None:
        raise UserError("a datum has no target_tokens")
    for name, array in {"target_tokens": targets_T, **inputs}.items():
        if array.shape != tokens_T.shape:
            raise UserError(f"{name} has the shape {array.shape}, but there are {len(tokens_T)} input tokens")
    return Datum(tokens_T.astype(np.int64), targets_T.astype(np.int64), inputs)


def _array(name: str, tensor: pb.Tensor) -> np.ndarray:
    if tensor.WhichOneof("encoding") != "dense" or tensor.dtype not in TYPES:
        raise UserError(f"{name}: this server needs a dense array with one number per token")
    return np.frombuffer(tensor.dense, TYPES[tensor.dtype]).reshape(tensor.shape or -1)


def samples(completions: Sequence[Completion]) -> bytes:
    reasons = {"stop": pb.STOP_REASON_STOP, "length": pb.STOP_REASON_LENGTH}
    return pb.SampleResponse(
        sequences=[
            pb.SampledSequence(
                stop_reason=reasons[one.finish],
                tokens=np.asarray(one.token_ids, np.int32).tobytes(),
                logprobs=one.logprobs_T.astype(np.float32).tobytes(),
            )
            for one in completions
        ]
    ).SerializeToString()


def losses(logprobs: Sequence[np.ndarray], loss: float) -> bytes:
    """Return the answer to a batch: float32 log-probs of each sequence's targets, and the summed loss."""
    ends = np.cumsum([0, *(one.nbytes for one in logprobs)], dtype=np.int64)
    tensor = pb.BatchedTensor(
        data=b"".join(one.tobytes() for one in logprobs), offsets=ends.tobytes(), dtype=pb.DTYPE_FLOAT32
    )
    record = pb.ArrayRecord(type_tag="ArrayRecord", fields={"logprobs": tensor}, num_datums=len(logprobs))
    return pb.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record], metrics={"loss:sum": loss}
    ).SerializeToString()
