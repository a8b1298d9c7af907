"""SQL over Arrow tables. Each query has a private connection, because Prefect runs stages in threads. A connection has
one thread, because the order of a parallel sum of floats changes its last bits.

The connections share one empty database in memory, because a new one takes 18 ms and a connection to it 1 ms.
"""

import atexit
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from storage.estimates import Band, band

T = TypeVar("T")
#: The last settings of a connection. After them, statements can neither change nor circumvent the settings.
LOCK = """
set autoinstall_known_extensions = false;
set autoload_known_extensions = false;
set enable_external_access = false;
set lock_configuration = true;
"""
QUERIES = Path(__file__).parent / "reading" / "queries"
HEADER = re.compile(r"\A/\*\n(.*?)\*/\n", re.DOTALL)
#: Macros for bands and pass@k. Each band has its own macro, so that a misspelt band is an error.
MACROS = "\n".join(
    (
        f"create macro bands() as {[str(band) for band in Band]};",
        "create macro band(num_correct, group_size) as band_of_group(num_correct::bigint, group_size::bigint);",
        "create macro pass_at_k(n, c, k) as pass_at_k_of_group(n::bigint, c::bigint, k::bigint);",
        *(f"create macro is_{band}(band) as band = '{band}';" for band in Band),
    )
)


def query(sql: str, parameters: dict[str, object] | None = None, /, **tables: pa.Table) -> pa.Table:
    """Run one statement over named Arrow tables and return its rows.

    >>> query("select max(n) as total from counts", counts=pa.table({"n": [1, 2]}))["total"].to_pylist()
    [2]
    """

    def ask() -> pa.Table:
        for name, table in tables.items():
            connection.register(name, table)
        return _rows(connection, sql, parameters)

    with _database().cursor() as connection:
        return _interruptible(connection, ask)


def answer(connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, object] | None = None) -> pa.Table:
    """Return the rows of one statement. A signal interrupts the statement."""
    return _interruptible(connection, lambda: _rows(connection, sql, parameters))


def _interruptible(connection: duckdb.DuckDBPyConnection, ask: Callable[[], T]) -> T:
    """Return the result of `ask`, called in a thread, because in the main thread DuckDB delays exceptions of
    signals."""
    if threading.current_thread() is not threading.main_thread():
        return ask()
    future: Future[T] = Future()
    thread = threading.Thread(target=_ask, args=(future, ask))
    try:
        thread.start()
        return future.result()
    finally:
        # a signal may arrive while the thread starts; an executor would then wait for the thread to end
        while thread.is_alive() or future.running():
            connection.interrupt()
            thread.join(0.01)


def _ask(future: Future[T], ask: Callable[[], T]) -> None:
    future.set_running_or_notify_cancel()
    try:
        future.set_result(ask())
    except BaseException as error:  # raised again for the caller
        future.set_exception(error)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, object] | None) -> pa.Table:
    return connection.sql(sql, params=parameters or {}).to_arrow_table()


def connect(*, threads: int, reads: Iterable[Path] = ()) -> duckdb.DuckDBPyConnection:
    """Open a private database in memory, with MACROS, bands and estimates. Close it before the interpreter exits.
    threads: 1 makes sums of floats the same on every machine. reads: files and folders that statements may read. No
    statement can write files or load extensions."""
    # imported here, because DuckDB warns of types that still exist when the interpreter exits
    from duckdb.func import FunctionNullHandling, PythonUDFType
    from duckdb.sqltypes import BIGINT, DOUBLE, VARCHAR

    from storage.estimates import interval_over_problems, pass_at_k_in_sql

    connection = duckdb.connect(config={"threads": threads})
    connection.create_function("band_of_group", band, [BIGINT, BIGINT], VARCHAR)
    nulls, arrow = FunctionNullHandling.SPECIAL, PythonUDFType.ARROW
    connection.create_function(
        "pass_at_k_of_group", pass_at_k_in_sql, [BIGINT, BIGINT, BIGINT], DOUBLE, null_handling=nulls, type=arrow
    )
    many = duckdb.list_type(DOUBLE)
    connection.create_function("interval_over_problems", interval_over_problems, [many], many, null_handling=nulls)
    folders, files = [f"{p}/" for p in reads if p.is_dir()], [str(p) for p in reads if not p.is_dir()]
    try:
        _interruptible(connection, lambda: connection.execute(MACROS))
        connection.execute("set allowed_directories = $folders", {"folders": folders})
        connection.execute("set allowed_paths = $files", {"files": files})
        connection.execute(LOCK)
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def _database() -> duckdb.DuckDBPyConnection:
    atexit.register(_database.cache_clear)  # DuckDB warns of objects that still exist when the interpreter exits
    return connect(threads=1)


def named(name: str) -> str:
    """Return the named query `storage/reading/queries/<name>.sql`, without its header."""
    return HEADER.sub("", (QUERIES / f"{name}.sql").read_text(encoding="utf-8"))


def header(name: str) -> str:
    """Return the header of a named query: TOML that declares its figure. The header may be empty."""
    found = HEADER.match((QUERIES / f"{name}.sql").read_text(encoding="utf-8"))
    return found[1] if found else ""
