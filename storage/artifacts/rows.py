"""Schemas in the notation `columns("problem_id str", "year int?")`, and the rows of artifacts, whole or in parts that
fit into memory. A column means the same in every kind."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.artifacts.ref import KINDS, Ref

TYPES = {
    "str": pa.string(),
    "int": pa.int32(),
    "big": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "ints": pa.list_(pa.int32()),
    "reals": pa.list_(pa.float32()),
}


def columns(*declared: str) -> pa.Schema:
    """Build a schema from `name type` texts, separated by commas; `?` after a type allows null.

    >>> columns("problem_id str, year int?").field("year").nullable
    True
    """
    fields = []
    for text in declared:
        for column in text.split(","):
            name, kind = column.split()
            fields.append(pa.field(name, TYPES[kind.rstrip("?")], nullable=kind.endswith("?")))
    return pa.schema(fields)


def nullable(*declared: str) -> pa.Schema:
    """Build a schema whose columns all allow null. Such tables have a column `reason`, which says why a value is
    missing."""
    return pa.schema([field.with_nullable(True) for field in columns(*declared)])


def joined(*schemas: pa.Schema) -> pa.Schema:
    return pa.schema([field for schema in schemas for field in schema])


# ---- rows of artifacts

#: Rows of a Parquet row group. It is small, so that a query for one problem reads little else.
ROW_GROUP = 20_000
GROUP_BYTES = 1 << 20
#: Rows per part, for artifacts that are processed in parts.
PART_ROWS = 512


@dataclass(frozen=True, slots=True)
class Payload:
    """The result of a stage: rows (whole or in parts), a folder of further files, and notes for the provenance."""

    table: pa.Table | Iterable[pa.Table]
    files: Path | None = None
    notes: dict[str, str] | None = None


class WrongRows(TypeError):
    """A stage returned rows whose schema is not that of its kind. This is a programming error."""


def write_rows(rows: pa.Table | Iterable[pa.Table], ref: Ref, path: Path) -> int:
    """Write rows of the ref's kind, and return their number. Raise WrongRows for another schema."""
    if ref.kind not in KINDS:
        raise WrongRows(f"{ref}: unknown kind {ref.kind}")
    number, parts = 0, iter(cast("Iterable[pa.Table]", [rows] if isinstance(rows, pa.Table) else rows))
    first = next(parts, KINDS[ref.kind].schema.empty_table())
    # allow null where the first part does, because older artifacts allow it in more columns than the kind
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for part in gathered(_of_the_kind(part, ref, first.schema) for part in chain([first], parts)):
            writer.write_table(part, row_group_size=ROW_GROUP)
            number += part.num_rows
    return number


def _of_the_kind(part: pa.Table, ref: Ref, schema: pa.Schema) -> pa.Table:
    wanted, there = KINDS[ref.kind].schema, Counter(part.column_names)
    wrong = [*(there - Counter(wanted.names)), *(Counter(wanted.names) - there)] or [
        field.name
        for field in wanted
        if part[field.name].type != field.type or (part[field.name].null_count and not field.nullable)
    ]
    if wrong:
        raise WrongRows(
            f"{ref}: rows are not of kind {ref.kind}: {', '.join(wrong)} are missing, unknown or of a wrong type"
        )
    return part.select(schema.names).cast(schema)


def gathered(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in fewer, larger parts, because each row group has a fixed cost.

    >>> [t.num_rows for t in gathered([pa.table({"n": range(9_000)})] * 4)]
    [27000, 9000]
    """
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        if sum(t.num_rows for t in waiting) >= ROW_GROUP or sum(t.nbytes for t in waiting) >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def read_parts(path: Path, columns: list[str] | None) -> Iterator[pa.Table]:
    """Yield the rows of a file in parts of PART_ROWS."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):  # one by one; a reader over all groups would keep all in memory
            for batch in file.iter_batches(PART_ROWS, row_groups=[group], columns=columns):
                yield pa.Table.from_batches([batch])


def whole_groups(parts: Iterable[pa.Table], keys: pa.Table) -> Iterator[pa.Table]:
    """Yield the same rows in parts that never separate rows with equal keys. keys: one per row, in order.

    >>> rows = pa.table({"k": ["a", "a", "b", "b"], "n": [1, 2, 3, 4]})
    >>> [t["n"].to_pylist() for t in whole_groups([rows.slice(0, 3), rows.slice(3)], rows.select(["k"]))]
    [[1, 2], [3, 4]]
    """
    ends_N, start = _ends(keys), 0
    del keys
    waiting, waiting_N = None, ends_N[:0]
    for part in parts:
        stop = start + part.num_rows
        rows = part if waiting is None else pa.concat_tables([waiting, part])
        rows_N = np.concatenate([waiting_N, ends_N[start:stop]])
        whole_N = rows_N < stop
        waiting, waiting_N, start = _kept(rows, pa.array(~whole_N)), rows_N[~whole_N], stop
        yield rows.filter(pa.array(whole_N))


def beside(
    parts: Iterable[pa.Table], others: Iterable[pa.Table], known: set[str], schema: pa.Schema
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield each table of `parts` and, for its problems, the rows of `others`. The rows of a problem are in one part.

    others: tables of whole problems, in about the same order. known: their problems. schema: theirs.

    >>> rows = pa.table({"problem_id": ["b", "a"], "n": [2, 1]})
    >>> pairs = beside([rows.slice(1), rows.slice(0, 1)], [rows], {"a", "b"}, rows.schema)
    >>> [(part["n"].to_pylist(), other["n"].to_pylist()) for part, other in pairs]
    [([1], [1]), ([2], [2])]
    """
    waiting, there, others = schema.empty_table(), set[str](), iter(others)
    for part in parts:
        mine = known.intersection(part["problem_id"].to_pylist())
        more = [waiting]
        while not mine <= there:
            more.append(next(others).select(schema.names))
            there.update(more[-1]["problem_id"].to_pylist())
        waiting = pa.concat_tables(more)
        taken = pc.field("problem_id").isin(pa.array(sorted(mine), pa.string()))
        yield part, waiting.filter(taken)
        waiting, there = _kept(waiting, ~taken), there - mine


def _kept(waiting: pa.Table, which: pa.Array | pc.Expression) -> pa.Table:
    """Filter rows, and drop empty chunks, which would slow down every later read."""
    kept = waiting.filter(which)
    return pa.Table.from_batches([rows for rows in kept.to_batches() if rows.num_rows], kept.schema)


def _ends(keys: pa.Table) -> np.ndarray:
    """Return for each row the index of the last row with the same keys."""
    code_N, codes = np.zeros(keys.num_rows, np.int64), 1
    for column in keys.columns:
        encoded = column.unify_dictionaries().combine_chunks()
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode()
        codes *= len(encoded.dictionary) + 1
        code_N *= len(encoded.dictionary) + 1
        code_N += encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        if codes > 4 * keys.num_rows:
            there_C, code_N = np.unique(code_N, return_inverse=True)
            codes = len(there_C)
    ends_C = np.zeros(codes, np.uint32)
    ends_C[code_N] = np.arange(keys.num_rows, dtype=np.uint32)  # for repeated codes the last row is kept
    return ends_C[code_N]
