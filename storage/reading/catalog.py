"""The catalog: DuckDB views over the Parquet files of every kind. A view stores nothing and is never out of date."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import columns
from storage.artifacts.store import MANIFEST, Store
from storage.errors import UserError
from storage.ledger import Ledger
from storage.reading.views import OF_THE_STATEMENT, WORD, view
from storage.records.runs import Run, planned_refs, run_to_read
from storage.roots import root_option
from storage.sql import answer, connect

ARTIFACTS = pa.schema(
    [
        *columns("kind str?, ref str?, stage str?, version int?, rows big?, bytes big?, seconds real?"),
        *columns("created str?, code str?"),
        pa.field("inputs", pa.list_(pa.string())),
    ]
)


def artifacts(root: Path) -> pa.Table:
    """Return one row per artifact, from its manifest. An artifact with an unreadable manifest is left out."""
    store = Store(root)
    return artifacts_of(store, store.refs())


def artifacts_of(store: Store, refs: Iterable[Ref]) -> pa.Table:
    """Return the rows of these artifacts. Manifests are not validated, because there may be thousands of them."""
    rows = []
    for ref in refs:
        with suppress(OSError, ValueError, KeyError, TypeError):
            m = orjson.loads((store.path(ref) / MANIFEST).read_bytes())
            inputs = [text for refs in m["recipe"]["inputs"].values() for text in refs]
            size = {"rows": m["rows"], "bytes": sum(f["bytes"] for f in m["files"])}
            row = m["provenance"] | m["recipe"] | size | {"kind": ref.kind, "ref": str(ref), "inputs": inputs}
            rows.append({name: row[name] for name in ARTIFACTS.names})
    return pa.Table.from_pylist(rows, schema=ARTIFACTS)


def ask(root: Path, statement: str, study: Sequence[Ref] | None = None) -> pa.Table:
    """Return the answer to a statement over a view per kind, `artifacts` and `ledger`. study: limit the views to these
    artifacts and their inputs, without the ledger. Raise UserError with DuckDB's message if the query fails."""
    table, store = artifacts(root), Store(root)
    if study is not None:
        seen = set[Ref]()
        within = {str(ref) for one in study for _, ref, _ in lineage(store, one, seen=seen)}
        table = table.filter(pa.array([ref in within for ref in table["ref"].to_pylist()], pa.bool_()))
    by_kind: dict[str, list[Ref]] = {} if study is not None else {"ledger": []}
    for ref in map(Ref.parse, table["ref"].to_pylist()):
        by_kind.setdefault(ref.kind, []).append(ref)
    # creating a view opens all files of its kind; a statement without a kind, such as `show tables`, gets all views
    words = {*WORD.findall(statement)}
    try:
        with connect(threads=4, reads=[store.root]) as connection:
            connection.register("artifacts", table)
            for kind in by_kind.keys() & words or (set() if "artifacts" in words else by_kind.keys()):
                if paths := Ledger(root).shard_paths() if kind == "ledger" else store.rows_of(by_kind[kind]):
                    view(connection, kind, paths)
            if [one.type for one in connection.extract_statements(statement)] != [duckdb.StatementType.SELECT]:
                raise UserError("sql: write one statement that begins with select, from, with, describe or summarize")
            return _with_unique_names(answer(connection, statement))
    except OF_THE_STATEMENT as error:
        views = ", ".join([*sorted(by_kind), "artifacts"])
        raise UserError(f"sql: {str(error).splitlines()[0]} (views: {views})") from None
    except duckdb.Error as error:
        raise UserError(f"sql: {str(error).splitlines()[0]}; see varband store verify") from None


def _with_unique_names(table: pa.Table) -> pa.Table:
    """Rename columns that have the same name, as DuckDB does in a subquery."""
    names: list[str] = []
    for name in table.column_names:
        names.append(next(free for free in chain([name], (f"{name}_{i}" for i in count(1))) if free not in names))
    return table.rename_columns(names)


def of_study(root: Path, text: str) -> list[Ref]:
    """Return a study's report, or else the planned artifacts of its run. Raise UserError as `find` does."""
    run = run_to_read(root, text)
    return [find(root, text)] if run is None or run.report else planned_refs(root, run.id)


def find(root: Path, text: str) -> Ref:
    """Return the report of the run or study with this name, or else the artifact whose ref or fingerprint starts with
    it. Raise UserError if no artifact or several match, or if the run has no report."""
    run = run_to_read(root, text)
    if run is not None and text in (run.id, run.profile):
        return _report_of(root, run)
    refs = [ref for ref in Store(root).refs() if ref.starts(text)]
    if len(refs) > 1:
        message = f"matches {len(refs)} artifacts, for example {refs[0]} and {refs[1]}"
        raise UserError(f"'{text[:80]}' {message}; write more characters of it")
    if refs:
        return refs[0]
    if run is not None:
        return _report_of(root, run)
    raise UserError(f"no artifact, run or study '{text[:80]}' under {root} (see: varband store ls, varband runs)")


def _report_of(root: Path, run: Run) -> Ref:
    if run.report is None:
        onward = f"varband resume {run.id}{root_option(root)}"
        raise UserError(f"run {run.id} has no report yet (state: {run.current_state}); continue with {onward}")
    return Ref.parse(run.report)


def lineage(store: Store, ref: Ref, depth: int = 0, seen: set[Ref] | None = None) -> Iterator[tuple[int, Ref, str]]:
    """Yield (depth, ref, stage) of an artifact and of everything that it was made from, each subtree once."""
    seen = set() if seen is None else seen
    try:
        manifest = store.manifest(ref)
    except UserError:
        yield depth, ref, "(deleted)"
        return
    again = ref in seen
    yield depth, ref, manifest.recipe.stage + (" (see above)" if again and manifest.input_refs else "")
    if again:
        return
    seen.add(ref)
    for parent in dict.fromkeys(manifest.input_refs):
        yield from lineage(store, parent, depth + 1, seen)
