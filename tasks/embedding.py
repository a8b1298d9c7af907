"""Embedding: every trace of some rollouts as a unit vector, with how much of it the encoder saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from storage.schemas import EMBEDDINGS
from tasks.domain.windows import window_named
from tasks.stage import Payload, Ref, progress, stage, store, toolbox

if TYPE_CHECKING:
    from tasks.engines.encoders import SentenceEncoder

COLUMNS = ["problem_id", "source", "arm", "step", "seed", "rollout", "correct", "num_tokens", "trace"]
CHUNK = 2048


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """The encoder by content. window: `whole`, `first256`, `middle256`, `last256` or `head2000chars`."""

    name: str
    weights_sha256: str
    max_tokens: int
    window: str = "whole"


def embedded(rollouts: pa.Table, vectors_ND: np.ndarray, coverage_N: np.ndarray, window: str) -> pa.Table:
    """Rollouts that have a trace, with their vectors. Schema: EMBEDDINGS."""
    kept = rollouts.filter(rollouts["trace"].is_valid())
    flat = pa.array(np.ascontiguousarray(vectors_ND, np.float32).reshape(-1))
    offsets = pa.array(np.arange(len(vectors_ND) + 1, dtype=np.int32) * vectors_ND.shape[1])
    columns = {name: kept[name] for name in COLUMNS if name != "trace"}
    return pa.table(
        columns
        | {
            "window": pa.array([window] * kept.num_rows, pa.string()),
            "coverage": pa.array(coverage_N, pa.float64()),
            "num_chars": pa.array([len(t) for t in kept["trace"].to_pylist()], pa.int32()),
            "embedding": pa.ListArray.from_arrays(offsets, flat),
        }
    ).select(EMBEDDINGS.names).cast(EMBEDDINGS)  # fmt: skip


@stage("embeddings", version=1)
def embed_traces(rollouts: Ref, encoder: EncoderSpec) -> Payload:
    """Unit vectors of the traces; malformed completions have none and are counted in the manifest's notes."""
    window = window_named(encoder.window)
    table = store().read(rollouts, COLUMNS)
    traces = [t for t in table["trace"].to_pylist() if t is not None]
    vectors, coverage = [np.zeros((0, 1), np.float32)] if not traces else [], [np.zeros(0)]
    if traces:
        engine = cast("SentenceEncoder", toolbox().embedder(encoder.name, encoder.weights_sha256, encoder.max_tokens))
        for start in range(0, len(traces), CHUNK):
            some, seen = engine.encode(traces[start : start + CHUNK], window)
            vectors.append(some)
            coverage.append(seen)
            progress(start + len(some), len(traces), "traces")
    result = embedded(table, np.concatenate(vectors), np.concatenate(coverage), encoder.window)
    notes = {"rollouts": str(table.num_rows), "traces": str(len(traces)),
             "trace_hit_rate": f"{len(traces) / table.num_rows:.6f}" if table.num_rows else "undefined"}  # fmt: skip
    return Payload(result, notes=notes)
