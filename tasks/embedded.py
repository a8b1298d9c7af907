"""Rollouts beside the vectors of their traces, part after part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.kinds import Embeddings
from tasks.stage import beside, store

VECTORS = ["problem_id", "arm", "step", "seed", "rollout", "embedding"]


def with_vectors(parts: Iterable[pa.Table], embeddings: Embeddings) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Each part, of whole problems, with the vectors of their whole traces: columns VECTORS."""
    whole, at = pc.field("window") == "whole", ["window", "problem_id"]
    known = set(store().keys(embeddings, at).filter(whole)["problem_id"].unique().to_pylist())
    schema = pa.schema([Embeddings.schema.field(name) for name in VECTORS])
    vectors = (part.filter(whole) for part in store().groups(embeddings, at, [*VECTORS, "window"]))
    yield from beside(parts, vectors, known, schema)
