"""Named queries over the inputs of one report, with a view for each argument of the stage that made it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.ref import KINDS, Ref
from storage.artifacts.schemas import DIAGNOSTICS, SOMETIMES, Tokens
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.sql import answer, connect, named

WORD = re.compile(r"\w+")
SMALL_BYTES = 8_000_000
#: The errors of DuckDB that concern the statement, and not files.
OF_THE_STATEMENT = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.PermissionException,
    duckdb.InterruptException,
)


class Views:
    """A private DuckDB connection with views of the store. `ask` runs a named query, and `sql` any other. Thread-safe.
    A view opens its files, so it is created only when a statement or a parameter names it."""

    def __init__(self, parquet: Mapping[str, Sequence[Path]], tables: Mapping[str, pa.Table], threads: int) -> None:
        self._connection = connect(threads=threads, reads=[path for paths in parquet.values() for path in paths])
        self._parquet = dict(parquet)
        self._waiting = dict(parquet)
        self._turn = Lock()
        for name, table in tables.items():
            if name not in parquet:
                self._connection.register(name, table)

    def close(self) -> None:
        self._connection.close()

    def ask(self, name: str, parameters: dict[str, object] | None = None) -> pa.Table:
        return self.sql(named(name), parameters, where=f"storage/reading/queries/{name}.sql")

    def sql(self, statement: str, parameters: dict[str, object] | None = None, where: str = "sql") -> pa.Table:
        """Run a statement. Raise UserError if DuckDB rejects it, with a hint if an artifact has an older schema."""
        named_by = {*WORD.findall(statement), *(v for v in (parameters or {}).values() if isinstance(v, str))}
        try:
            with self._turn:
                for name in named_by & self._waiting.keys():
                    view(self._connection, name, self._waiting[name])
                    del self._waiting[name]
                return answer(self._connection, statement, parameters)
        except duckdb.IOException:
            raise UserError(f"{where}: one of its artifacts was deleted: run the study again to remake it") from None
        except OF_THE_STATEMENT as error:
            message = " ".join(line.strip() for line in str(error).partition("\nLINE ")[0].splitlines() if line.strip())
            raise UserError(f"{where}: {message}{self._outdated(named_by)}") from None

    def _outdated(self, named_by: set[str]) -> str:
        """Return a hint on the first artifact that lacks columns of its kind; empty if there is none."""
        for name in sorted(named_by & self._parquet.keys()):
            for path in self._parquet[name]:
                kind = KINDS.get(path.parent.name.rpartition("-")[0])
                lacks = [] if kind is None else sorted({*kind.schema.names} - {*pq.read_schema(path).names})
                if lacks:
                    old = f"{path.parent.name} is of an older version, without {', '.join(lacks)}"
                    return f" ({old}: run the study again)"
        return ""


def views(parquet: Mapping[str, Sequence[Path]], tables: Mapping[str, pa.Table], *, threads: int = 1) -> closing[Views]:
    """Return a context manager with views over tables and over Parquet files, whose rows have a `ref`."""
    return closing(Views(parquet, tables, threads))


def listed(paths: Sequence[Path]) -> str:
    """Return paths as an SQL list."""
    return "[" + ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths) + "]"


def view(connection: duckdb.DuckDBPyConnection, name: str, paths: Sequence[Path]) -> None:
    """Create a view whose rows have their `ref`. For many files create a table, because a view reopens them."""
    small = len(paths) > 1 and sum(p.stat().st_size for p in paths if p.exists()) < SMALL_BYTES
    connection.execute(
        f'create {"table" if small else "view"} "{name}" as'
        f" select * exclude (filename), parse_filename(parse_dirpath(filename)) as ref"
        f" from read_parquet({listed(paths)}, union_by_name = true, filename = true)"
    )


def inputs_of(store: Store, inputs: Mapping[str, Sequence[str]]) -> dict[str, list[Path]]:
    """Return argument → Parquet files, and `diagnostics` of trainings. Raise UserError if an input was deleted."""
    found = {}
    for argument, refs in inputs.items():
        found[argument] = store.rows_of(map(Ref.parse, refs))
        for path in found[argument]:
            if not path.exists():
                raise UserError(f"{path.parent.name} was deleted: run the study again to remake it and its report")
    beside = [store.files(Ref.parse(ref)) / "diagnostics.parquet" for ref in inputs.get("trainings", ())]
    return found | ({"diagnostics": known} if (known := [path for path in beside if path.exists()]) else {})


def helper_tables(inputs: Mapping[str, Sequence[str]], arms: Sequence[str]) -> dict[str, pa.Table]:
    """Return further tables that queries need, and an empty table for each input that this report lacks. `arms`: in the
    order of their colours. `diagnostics`: empty, for trainings without them. `measured`: each artifact of final
    rollouts with its diversity. `sliced_by`: the benchmark of each pass@k and contrast."""

    def texts(**columns: Sequence[str]) -> pa.Table:
        return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})

    pairs = [*zip(inputs.get("final", ()), inputs.get("diversities", ()), strict=False)]
    sliced = {name: inputs.get(name, ()) for name in ("benchmarks", "slices", "slice_contrasts")}
    helpers = {
        "arms": texts(arm=arms).append_column("place", pa.array(range(len(arms)), pa.int32())),
        "measured": texts(final=[p[0] for p in pairs], diversity=[p[1] for p in pairs]),
        "sliced_by": texts(**sliced),
        "diagnostics": DIAGNOSTICS.empty_table(),
        "tokens": Tokens.schema.empty_table(),
    }
    empty = {
        name: kind.schema.append(pa.field("ref", pa.string())).empty_table()
        for name, kind in SOMETIMES.items()
        if name not in inputs
    }
    return helpers | empty
