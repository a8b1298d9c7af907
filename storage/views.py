"""Named questions over the inputs of one report: a view for each argument of the stage that made it.

Report and dashboards ask the same files in `storage/queries/`; a view is as large as its Parquet and is never loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from storage.artifacts import Ref
from storage.errors import UserError
from storage.schemas import BANDS, ROLLOUTS, STEPS
from storage.sql import named
from storage.store import DATA, Store

#: Arguments of the report that may be empty, and what they would hold.
MAY_BE_EMPTY = {
    "screenings": ROLLOUTS, "evaluations": ROLLOUTS, "final": ROLLOUTS, "bands": BANDS, "trainings": STEPS,
    "contrasts": pa.schema([
        *(pa.field(name, pa.string()) for name in ("question", "arm", "other", "source", "reason")),
        *(pa.field(name, pa.int32()) for name in ("step", "other_step", "k", "n")),
        *(pa.field(name, pa.float64()) for name in ("estimate", "low", "high", "p_value")),
    ]),
    "answers": pa.schema([
        pa.field("arm", pa.string()), pa.field("step", pa.int32()),
        *(pa.field(name, pa.float64()) for name in ("answered", "entropy", "disagreement", "distinct", "distinct_of_4",
                                                    "distinct_wrong")),
    ]),
    "votes": pa.schema([
        *(pa.field(name, pa.string()) for name in ("metric", "arm", "source", "reason")),
        *(pa.field(name, pa.int32()) for name in ("step", "k", "n")),
        *(pa.field(name, pa.float64()) for name in ("estimate", "low", "high")),
    ]),
    "ceilings": pa.schema([
        *(pa.field(name, pa.string()) for name in ("arm", "window", "reason")),
        *(pa.field(name, pa.int64()) for name in ("step", "seed", "n", "problems", "reworded")),
        *(pa.field(name, pa.float64()) for name in ("floor", "within", "between", "position", "coverage")),
    ]),
    "asymptotes": pa.schema([
        *(pa.field(name, pa.string()) for name in ("arm", "source")),
        *(pa.field(name, pa.int64()) for name in ("step", "k", "unsolved", "n", "rollouts", "policies")),
        *(pa.field(name, pa.float64()) for name in ("estimate", "low", "high", "doubling", "doubling_low",
                                                    "doubling_high", "unsolved_below")),
    ]),
}  # fmt: skip


class Views:
    """One private connection over views; `ask` runs a named query, `sql` any other."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def ask(self, name: str, parameters: dict[str, object] | None = None) -> pa.Table:
        return self.sql(named(name), parameters, where=f"query {name}")

    def sql(self, statement: str, parameters: dict[str, object] | None = None, where: str = "sql") -> pa.Table:
        """Errors: UserError if a view lacks what the statement reads, as with artifacts of an older schema."""
        try:
            return self._connection.sql(statement, params=parameters or {}).to_arrow_table()
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.IOException) as error:
            raise UserError(
                f"{where}: {str(error).splitlines()[0]} (made by another version of the stages? run the study again)"
            ) from None


@contextmanager
def views(
    parquet: Mapping[str, Sequence[Path]], tables: Mapping[str, pa.Table], *, threads: int = 1
) -> Iterator[Views]:
    """Views over Parquet, whose rows carry the `ref` they came from, and over tables in memory.

    threads: one makes sums of floats the same on every machine.
    """
    with duckdb.connect(config={"threads": threads}) as connection:
        for name, paths in parquet.items():
            listed = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
            connection.execute(
                f'create view "{name}" as select * exclude (filename), parse_filename(parse_dirpath(filename)) as ref'
                f" from read_parquet([{listed}], union_by_name = true, filename = true)"
            )
        for name, table in tables.items():
            connection.register(name, table)
        yield Views(connection)


def inputs_of(store: Store, inputs: Mapping[str, Sequence[str]]) -> dict[str, list[Path]]:
    """Argument → Parquet of its artifacts. Errors: UserError if one is gone."""
    found = {}
    for argument, refs in inputs.items():
        found[argument] = [store.path(Ref.parse(text)) / DATA for text in refs]
        for path in found[argument]:
            if not path.exists():
                raise UserError(f"{path.parent.name} was deleted: run the study again to remake it and its report")
    return found


def helper_tables(inputs: Mapping[str, Sequence[str]], arms: Sequence[str]) -> dict[str, pa.Table]:
    """`arms`: in the order in which everything lists and colours them. `measured`: which final rollouts a diversity
    is of. And a table without rows for each argument that this report has none of."""
    pairs = list(zip(inputs.get("final", ()), inputs.get("diversities", ()), strict=False))
    helpers = {
        "arms": pa.table({"arm": pa.array(arms, pa.string()), "place": pa.array(range(len(arms)), pa.int32())}),
        "measured": pa.table(
            {"final": pa.array([p[0] for p in pairs], pa.string()),
             "diversity": pa.array([p[1] for p in pairs], pa.string())}
        ),
    }  # fmt: skip
    empty = {name: schema.append(pa.field("ref", pa.string())).empty_table() for name, schema in MAY_BE_EMPTY.items()}
    return helpers | {name: table for name, table in empty.items() if name not in inputs}
