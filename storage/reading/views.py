"""Named questions over the inputs of one report: a view for each argument of the stage that made it.

Report and dashboards ask the same files in `queries/`; a view is as large as its Parquet and is never loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.kinds import SOMETIMES
from storage.artifacts.ref import KINDS, Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.sql import answer, connect, named

WORD = re.compile(r"\w+")
SMALL_BYTES = 8_000_000
#: The errors of DuckDB that are about a statement, whatever the files hold.
OF_THE_STATEMENT = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.PermissionException,
    duckdb.InterruptException,
)


class Views:
    """One private connection over views; `ask` runs a named query, `sql` any other.

    A view is made when a statement or a parameter first names it: each opens its files, and most questions are about
    a few. Threads take turns.
    """

    def __init__(self, parquet: Mapping[str, Sequence[Path]], tables: Mapping[str, pa.Table], threads: int) -> None:
        self._connection = connect(threads=threads, reads=[path for paths in parquet.values() for path in paths])
        self._parquet = dict(parquet)
        self._waiting = dict(parquet)
        self._turn = Lock()
        for name, table in tables.items():
            self._connection.register(name, table)

    def close(self) -> None:
        self._connection.close()

    def ask(self, name: str, parameters: dict[str, object] | None = None) -> pa.Table:
        return self.sql(named(name), parameters, where=f"storage/reading/queries/{name}.sql")

    def sql(self, statement: str, parameters: dict[str, object] | None = None, where: str = "sql") -> pa.Table:
        """Errors: UserError for a statement that DuckDB refuses, in its words; where an artifact of an older schema may
        be why, it is named."""
        named_by = {*WORD.findall(statement), *(v for v in (parameters or {}).values() if isinstance(v, str))}
        try:
            with self._turn:
                for name in named_by & self._waiting.keys():
                    _view(self._connection, name, self._waiting[name])
                    del self._waiting[name]
                return answer(self._connection, statement, parameters)
        except duckdb.IOException:
            raise UserError(f"{where}: one of its artifacts was deleted: run the study again to remake it") from None
        except OF_THE_STATEMENT as error:
            said = " ".join(line.strip() for line in str(error).partition("\nLINE ")[0].splitlines() if line.strip())
            raise UserError(f"{where}: {said}{self._outdated(named_by)}") from None

    def _outdated(self, named_by: set[str]) -> str:
        """Columns of these views' kinds that the first artifact without them lacks, and the way out; empty if none."""
        for name in sorted(named_by & self._parquet.keys()):
            for path in self._parquet[name]:
                kind = KINDS.get(path.parent.name.rpartition("-")[0])
                lacks = [] if kind is None else sorted({*kind.schema.names} - {*pq.read_schema(path).names})
                if lacks:
                    old = f"{path.parent.name} is of an older version, without {', '.join(lacks)}"
                    return f" ({old}: run the study again)"
        return ""


@contextmanager
def views(
    parquet: Mapping[str, Sequence[Path]], tables: Mapping[str, pa.Table], *, threads: int = 1
) -> Iterator[Views]:
    """Views over Parquet, whose rows carry the `ref` they came from, and over tables in memory."""
    asked = Views(parquet, tables, threads)
    try:
        yield asked
    finally:
        asked.close()


def _view(connection: duckdb.DuckDBPyConnection, name: str, paths: Sequence[Path]) -> None:
    """Many small files are read once and kept: a view would open every one of them for each question."""
    listed = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    small = len(paths) > 1 and sum(p.stat().st_size for p in paths if p.exists()) < SMALL_BYTES
    connection.execute(
        f'create {"table" if small else "view"} "{name}" as'
        f" select * exclude (filename), parse_filename(parse_dirpath(filename)) as ref"
        f" from read_parquet([{listed}], union_by_name = true, filename = true)"
    )


def inputs_of(store: Store, inputs: Mapping[str, Sequence[str]]) -> dict[str, list[Path]]:
    """Argument → Parquet of its artifacts. Errors: UserError if one is gone."""
    found = {}
    for argument, refs in inputs.items():
        found[argument] = store.rows_of(map(Ref.parse, refs))
        for path in found[argument]:
            if not path.exists():
                raise UserError(f"{path.parent.name} was deleted: run the study again to remake it and its report")
    return found


def helper_tables(inputs: Mapping[str, Sequence[str]], arms: Sequence[str]) -> dict[str, pa.Table]:
    """`arms`: in the order in which everything lists and colours them. `measured`: which final rollouts a diversity
    is of. `sliced_by`: which benchmark pass@k and contrasts are of. And a table without rows for each argument that
    this report has none of."""
    pairs = list(zip(inputs.get("final", ()), inputs.get("diversities", ()), strict=False))
    helpers = {
        "arms": pa.table({"arm": pa.array(arms, pa.string()), "place": pa.array(range(len(arms)), pa.int32())}),
        "measured": pa.table(
            {
                "final": pa.array([p[0] for p in pairs], pa.string()),
                "diversity": pa.array([p[1] for p in pairs], pa.string()),
            }
        ),
        "sliced_by": pa.table(
            {name: pa.array(inputs.get(name, ()), pa.string()) for name in ("benchmarks", "slices", "slice_contrasts")}
        ),
    }
    empty = {
        name: kind.schema.append(pa.field("ref", pa.string())).empty_table()
        for name, kind in SOMETIMES.items()
        if name not in inputs
    }
    return helpers | empty
