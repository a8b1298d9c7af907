"""Embedding: each trace as a unit vector, with the share of its tokens that the encoder read."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.schemas import Embeddings, Rollouts
from storage.errors import UserError
from tasks.domain.statistics.windows import REWORDED, reworded, window_named
from tasks.stage import Payload, progress, stage, store, toolbox, workdir

COLUMNS = ["problem_id", "source", "arm", "step", "seed", "rollout", "correct", "num_tokens", "trace"]
CHUNK = 2048


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """An encoder, identified by its content. windows: further parts of each trace to encode, such as `first256`,
    `middle256`, `last256`, `head2000chars`; `whole` (the beginning, up to `max_tokens`) is always encoded."""

    name: str
    weights_sha256: str
    max_tokens: int
    windows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len({"whole", REWORDED, *self.windows}) != len(self.windows) + 2:
            raise UserError(
                f"encoder.windows is {', '.join(self.windows)}: list each window once, but not whole or {REWORDED}"
            )
        for name in self.windows:
            window_named(name)


def embedded(rollouts: pa.Table, vectors_ND: np.ndarray, coverage_N: np.ndarray, window: str) -> pa.Table:
    """Return the rollouts that have a trace, with vectors. Schema: Embeddings."""
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


def in_other_words(rollouts: pa.Table, known: set[str] | None = None) -> pa.Table:
    """Return one reworded trace for each problem: its first trace with words that have synonyms. Differences between
    traces that are smaller than that between a trace and its reworded version mean nothing. known: problems that have a
    reworded trace already. New ones are added to it."""
    known, found = set() if known is None else known, list[tuple[int, str]]()
    for i, (problem, trace) in enumerate(zip(*(rollouts[c].to_pylist() for c in ("problem_id", "trace")), strict=True)):
        if trace is not None and problem not in known and (rewritten := reworded(trace)) is not None:
            known.add(problem)
            found.append((i, rewritten))
    rows = rollouts.take(pa.array([i for i, _ in found], pa.int64()))
    rewritten = pa.array([text for _, text in found], pa.string())
    return rows.set_column(rows.column_names.index("trace"), "trace", rewritten)


@stage(Embeddings, version=2)
def embed_traces(*, rollouts: Rollouts, encoder: EncoderSpec) -> Payload:
    """Embed the traces in every window, and a reworded trace per problem. A malformed completion has no trace."""
    rows = store().manifest(rollouts).rows
    traces = rows - sum(part["trace"].null_count for part in store().parts(rollouts, ["trace"]))
    notes = {
        "rollouts": str(rows),
        "traces": str(traces),
        "trace_hit_rate": f"{traces / rows:.6f}" if rows else "undefined",
    }
    return Payload(_vectors(rollouts, encoder, traces) if traces else Embeddings.schema.empty_table(), notes=notes)


def _vectors(rollouts: Rollouts, encoder: EncoderSpec, traces: int) -> Iterator[pa.Table]:
    """Yield vectors window by window. All windows are encoded in one pass; vectors of later windows wait in files."""
    engine = toolbox().embedder(encoder.name, encoder.weights_sha256, encoder.max_tokens)
    windows, done = [None, *(window_named(name) for name in encoder.windows)], 0
    with TemporaryDirectory(dir=workdir()) as folder, ExitStack() as open_files:
        paths = [Path(folder) / f"{name}.parquet" for name in encoder.windows]
        aside = [open_files.enter_context(pq.ParquetWriter(path, Embeddings.schema)) for path in paths]
        valid = (part.filter(part["trace"].is_valid()) for part in store().parts(rollouts, COLUMNS))
        for some in _of_size(valid, CHUNK):
            vectors_WND, coverage_WN = engine.encode_windows(some["trace"].to_pylist(), windows)
            named = zip(vectors_WND, coverage_WN, ("whole", *encoder.windows), strict=True)
            whole, *others = (embedded(some, v, c, name) for v, c, name in named)
            for file, part in zip(aside, others, strict=True):
                file.write_table(part)
            done += some.num_rows
            progress(done, traces, "traces")
            yield whole
        open_files.close()
        for path in paths:
            with pq.ParquetFile(path) as file:
                yield from (file.read_row_group(group) for group in range(file.num_row_groups))
    known = set[str]()
    for some in _of_size((in_other_words(part, known) for part in store().parts(rollouts, COLUMNS)), CHUNK):
        yield embedded(some, *engine.encode(some["trace"].to_pylist()), REWORDED)


def _of_size(parts: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the same rows in parts of this size. The last part may be smaller.

    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> [t["n"].to_pylist() for t in _of_size([rows, rows.slice(0, 0), rows], 4)]
    [[1, 2, 3, 1], [2, 3]]
    """
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        while sum(table.num_rows for table in waiting) >= rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, rows)
            waiting = [joined.slice(rows)]
    if sum(table.num_rows for table in waiting):
        yield pa.concat_tables(waiting)
