"""SQL over Arrow tables: one private connection per query, because Prefect runs stages in threads; one thread,
because sums of floats in whatever order threads finish are not the same bytes twice.

The connections share one empty database in memory: opening one costs 18 ms, a connection to it 1 ms, and a step of
training asks several times.
"""

from __future__ import annotations

import atexit
import re
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

QUERIES = Path(__file__).parent / "reading" / "queries"
HEADER = re.compile(r"\A/\*\n(.*?)\*/\n", re.DOTALL)
#: Rules that questions share with Python: tasks.domain.bands and tasks.domain.statistics.estimators.pass_at_k.
MACROS = """
create macro bands() as ['all_zero', 'variance', 'all_one'];
create macro band(num_correct, group_size) as
    case when num_correct is null or group_size is null then null
    when num_correct = 0 then 'all_zero' when num_correct = group_size then 'all_one' else 'variance' end;
create macro pass_at_k(n, c, k) as case
    when n is null or c is null or k is null then null
    when c < 0 or c > n then error('a group has fewer rollouts than correct ones')
    when k < 1 then error('k counts draws, so it is at least 1')
    when n >= k then 1 - list_reduce(
    range(k)::double[], lambda miss, i: miss * greatest(n - c - i, 0) / greatest(n - i, 1), 1.0::double) end;
"""


def query(sql: str, parameters: dict[str, object] | None = None, /, **tables: pa.Table) -> pa.Table:
    """Run one statement over named Arrow tables and return its rows.

    >>> query("select max(n) as total from counts", counts=pa.table({"n": [1, 2]}))["total"].to_pylist()
    [2]
    """
    with _database().cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql, params=parameters or {}).to_arrow_table()


def connect(*, threads: int) -> duckdb.DuckDBPyConnection:
    """A private database in memory that knows MACROS and `bootstrap`, [low, high] of a mean over problems. Close it: a
    function of Python's that outlives the interpreter makes DuckDB complain.

    threads: one makes sums of floats the same on every machine.
    """
    from storage.resampling import bootstrap

    connection = duckdb.connect(config={"threads": threads})
    connection.execute(MACROS)
    connection.create_function("bootstrap", bootstrap, ["DOUBLE[]"], "DOUBLE[]")  # pyright: ignore[reportArgumentType]
    return connection


@cache
def _database() -> duckdb.DuckDBPyConnection:
    atexit.register(_database.cache_clear)  # DuckDB complains of what outlives the interpreter
    return connect(threads=1)


def named(name: str) -> str:
    """The text of a named question: `storage/reading/queries/<name>.sql`, without its header."""
    return HEADER.sub("", (QUERIES / f"{name}.sql").read_text(encoding="utf-8"))


def header(name: str) -> str:
    """What stands above a named question: TOML that declares its figure. Empty without one."""
    found = HEADER.match((QUERIES / f"{name}.sql").read_text(encoding="utf-8"))
    return found[1] if found else ""
