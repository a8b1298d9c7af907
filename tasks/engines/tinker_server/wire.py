"""The binary bodies of the Tinker API, by the SDK's own messages: batches come in, samples and losses go out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import zstandard  # pyright: ignore[reportMissingImports]
from tinker.proto import tinker_public_pb2 as pb  # pyright: ignore[reportMissingImports]

from storage.errors import UserError
from tasks.engines.protocols import Completion
from tasks.engines.tinker_server.learner import Datum

TYPES = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}
#: The largest batch after decompression.
MOST_BYTES = 1 << 30


def read_batch(body: bytes, encoding: str | None) -> tuple[pb.ForwardBackwardRequest, list[Datum], dict[str, float]]:
    """Read the body of forward_backward: the message, its sequences, and the loss's settings. encoding: the request's
    Content-Encoding."""
    if encoding == "zstd":
        body = zstandard.ZstdDecompressor().decompress(body, max_output_size=MOST_BYTES)
    message = pb.ForwardBackwardRequest.FromString(body)
    settings = {**message.loss_fn_config, **{name: value.number for name, value in message.loss_fn_config_v2.items()}}
    return message, [_datum(datum) for datum in message.data], settings


def _datum(message: pb.Datum) -> Datum:
    if any(chunk.WhichOneof("chunk") != "encoded_text" for chunk in message.model_input):
        raise UserError("this server reads text only, no images or sound")
    tokens_T = np.concatenate([np.frombuffer(c.encoded_text.tokens, np.int32) for c in message.model_input])
    inputs = {name: _array(name, tensor) for name, tensor in message.loss_fn_inputs.items()}
    targets_T = inputs.pop("target_tokens", None)
    if targets_T is None:
        raise UserError("a datum has no target_tokens")
    for name, array in {"target_tokens": targets_T, **inputs}.items():
        if array.shape != tokens_T.shape:
            raise UserError(f"{name} has {array.shape} values for {len(tokens_T)} input tokens")
    return Datum(tokens_T.astype(np.int64), targets_T.astype(np.int64), inputs)


def _array(name: str, tensor: pb.Tensor) -> np.ndarray:
    if tensor.WhichOneof("encoding") != "dense" or tensor.dtype not in TYPES:
        raise UserError(f"{name}: this server reads dense arrays of one number per token")
    return np.frombuffer(tensor.dense, TYPES[tensor.dtype]).reshape(tensor.shape or -1)


def samples(completions: Sequence[Completion]) -> bytes:
    """Return the answer to a request for samples."""
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
    """Return the answer to a batch: float32 log-probs of each datum's targets, and the summed loss."""
    ends = np.cumsum([0, *(one.nbytes for one in logprobs)], dtype=np.int64)
    tensor = pb.BatchedTensor(
        data=b"".join(one.tobytes() for one in logprobs), offsets=ends.tobytes(), dtype=pb.DTYPE_FLOAT32
    )
    record = pb.ArrayRecord(type_tag="ArrayRecord", fields={"logprobs": tensor}, num_datums=len(logprobs))
    return pb.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record], metrics={"loss:sum": loss}
    ).SerializeToString()
