"""Rollouts beside the vectors of their traces, part after part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.kinds import Embeddings
from storage.errors import UserError
from tasks.stage import beside, store

VECTORS = ["problem_id", "arm", "step", "seed", "rollout", "embedding"]


def with_vectors(parts: Iterable[pa.Table], embeddings: Embeddings) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Each part, of whole problems, with the vectors of their whole traces: columns VECTORS."""
    whole, at = pc.field("window") == "whole", ["window", "problem_id"]
    known = set(store().keys(embeddings, at).filter(whole)["problem_id"].unique().to_pylist())
    schema = pa.schema([Embeddings.schema.field(name) for name in VECTORS])
    vectors = (part.filter(whole) for part in store().groups(embeddings, at, [*VECTORS, "window"]))
    yield from beside(parts, vectors, known, schema)


def matrix(vectors: pa.ChunkedArray) -> np.ndarray:
    """(N, D) of a list column. Errors: UserError for vectors of unequal length or numbers that are not finite."""
    whole = vectors.combine_chunks()
    lengths = np.unique(np.diff(whole.offsets.to_numpy()))
    if len(lengths) != 1:
        raise UserError(f"embeddings have vectors of {len(lengths)} lengths: they are of more than one encoder")
    flat = whole.flatten().to_numpy(zero_copy_only=False)
    if not np.isfinite(flat).all():
        raise UserError("embeddings hold numbers that are not finite: embed the traces again")
    return flat.reshape(len(whole), -1)
