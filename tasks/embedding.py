"""Embedding: every trace of some rollouts as a unit vector, with how much of it the encoder saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Embeddings, Rollouts
from storage.errors import UserError
from tasks.domain.statistics.rewording import REWORDED, reworded
from tasks.domain.statistics.windows import window_named
from tasks.stage import Payload, progress, stage, store, toolbox

if TYPE_CHECKING:
    from tasks.engines.encoding.encoders import SentenceEncoder

COLUMNS = ["problem_id", "source", "arm", "step", "seed", "rollout", "correct", "num_tokens", "trace"]
CHUNK = 2048


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """The encoder by content. windows: what it is shown beside each trace's `whole`, that is its beginning up to
    `max_tokens`: `first256`, `middle256`, `last256`, `head2000chars`. formerly: its digest when other files of its
    folder counted; a label."""

    name: str
    weights_sha256: str
    max_tokens: int
    windows: tuple[str, ...] = ()
    formerly: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if len({"whole", REWORDED, *self.windows}) != len(self.windows) + 2:
            raise UserError(f"encoder windows {', '.join(self.windows)}: each once, without whole and {REWORDED}")
        for name in self.windows:
            window_named(name)


def embedded(rollouts: pa.Table, vectors_ND: np.ndarray, coverage_N: np.ndarray, window: str) -> pa.Table:
    """Rollouts that have a trace, with their vectors. Schema: Embeddings."""
    kept = rollouts.filter(rollouts["trace"].is_valid())
    flat = pa.array(np.ascontiguousarray(vectors_ND, np.float32).reshape(-1))
    offsets = pa.array(np.arange(len(vectors_ND) + 1, dtype=np.int32) * vectors_ND.shape[1])
    columns = {name: kept[name] for name in COLUMNS if name != "trace"}
    return (
        pa.table(
            columns
            | {
                "window": pa.array([window] * kept.num_rows, pa.string()),
                "coverage": pa.array(coverage_N, pa.float64()),
                "num_chars": pa.array([len(t) for t in kept["trace"].to_pylist()], pa.int32()),
                "embedding": pa.ListArray.from_arrays(offsets, flat),
            }
        )
        .select(Embeddings.schema.names)
        .cast(Embeddings.schema)
    )


def in_other_words(rollouts: pa.Table) -> pa.Table:
    """The first trace of each problem that can be reworded, reworded: enough for the floor of its distances."""
    first: dict[str, tuple[int, str]] = {}
    for i, (problem, trace) in enumerate(zip(*(rollouts[c].to_pylist() for c in ("problem_id", "trace")), strict=True)):
        if trace is not None and problem not in first and (said := reworded(trace)) is not None:
            first[problem] = i, said
    rows = rollouts.take(pa.array([i for i, _ in first.values()], pa.int64()))
    said = pa.array([text for _, text in first.values()], pa.string())
    return rows.set_column(rows.column_names.index("trace"), "trace", said)


@stage(Embeddings, version=2)
def embed_traces(*, rollouts: Rollouts, encoder: EncoderSpec) -> Payload:
    """Unit vectors of the traces in every window, and of one trace a problem reworded. Malformed completions have
    none and are counted in the manifest's notes."""
    named = {"whole": None} | {name: window_named(name) for name in encoder.windows}
    table = store().read(rollouts, COLUMNS)
    traces = [t for t in table["trace"].to_pylist() if t is not None]
    other = in_other_words(table)
    notes = {
        "rollouts": str(table.num_rows),
        "traces": str(len(traces)),
        "trace_hit_rate": f"{len(traces) / table.num_rows:.6f}" if table.num_rows else "undefined",
    }
    if not traces:
        return Payload(embedded(table, np.zeros((0, 1), np.float32), np.zeros(0), "whole"), notes=notes)
    engine = cast("SentenceEncoder", toolbox().embedder(encoder.name, encoder.weights_sha256, encoder.max_tokens))
    parts = []
    for start in range(0, len(traces), CHUNK):
        some = traces[start : start + CHUNK]
        parts.append(engine.encode_windows(some, list(named.values())))
        progress(start + len(some), len(traces), "traces")
    vectors_WND, coverage_WN = (np.concatenate(of, axis=1) for of in zip(*parts, strict=True))
    found = [embedded(table, v, c, name) for v, c, name in zip(vectors_WND, coverage_WN, named, strict=True)]
    if other.num_rows:
        found.append(embedded(other, *engine.encode(other["trace"].to_pylist()), REWORDED))
    return Payload(pa.concat_tables(found), notes=notes)
