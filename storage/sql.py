"""SQL over Arrow tables: one private connection per query, because Prefect runs stages in threads; one thread,
because sums of floats in whatever order threads finish are not the same bytes twice.

The connections share one empty database in memory: opening one costs 18 ms, a connection to it 1 ms, and a step of
training asks several times.
"""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

QUERIES = Path(__file__).parent / "reading" / "queries"


def query(sql: str, parameters: dict[str, object] | None = None, /, **tables: pa.Table) -> pa.Table:
    """Run one statement over named Arrow tables and return its rows.

    >>> query("select max(n) as total from counts", counts=pa.table({"n": [1, 2]}))["total"].to_pylist()
    [2]
    """
    with _database().cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql, params=parameters or {}).to_arrow_table()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    atexit.register(_database.cache_clear)  # DuckDB complains of what outlives the interpreter
    return duckdb.connect(config={"threads": 1})


def named(name: str) -> str:
    """The text of a named question: `storage/reading/queries/<name>.sql`."""
    return (QUERIES / f"{name}.sql").read_text()
