"""A read-only view of a store, for notebooks and scripts: `from varband import open_store`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading import catalog
from storage.reading.charts import as_svg, specs_of
from storage.reading.figures import FIGURES, figure_named
from storage.reading.query_cache import ask, report_arguments, report_inputs, reports, sources
from storage.roots import root_folder

QUESTION = """
select arm, step, verdict, count(*) as rollouts, round(avg(num_tokens)) as tokens
from rollouts group by all order by all
"""


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """The newest report of a study. Tables are Arrow tables, which `.to_pandas()` and `polars.from_arrow` convert.
    DuckDB reads Arrow tables by the names of Python variables."""

    root: Path
    report: str

    @property
    def tables(self) -> list[str]:
        return [name for name, figure in FIGURES.items() if sources(self.root, self.report, figure.sources[:1])]

    def table(self, name: str) -> pa.Table:
        """Return a table of the report, such as `summary` or `gains`. Raise UserError for an unknown name."""
        return ask(self.root, self.report, figure_named(name).query)

    def svg(self, name: str) -> str:
        """Return the first chart of a figure as SVG. Raise UserError if the figure has no chart."""
        figure, store = figure_named(name), Store(self.root)
        arms = report_arguments(store.manifest(Ref.parse(self.report)).recipe).arms
        if not (charts := specs_of(figure.chart, self.table(name), arms)):
            raise UserError(f"figure {name} has no chart; get its numbers with table('{name}')")
        return as_svg(charts[0], page="white")

    def rollouts(self) -> pa.Table:
        """Return the graded rollouts of the last evaluation."""
        store = Store(self.root)
        refs = report_inputs(store.manifest(Ref.parse(self.report)).recipe)["final"]
        return pa.concat_tables([store.read(Ref.parse(ref)) for ref in dict.fromkeys(refs)])


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A root. Only studies with a report are listed."""

    root: Path

    @property
    def studies(self) -> list[str]:
        """Return the names of the studies, the newest report first."""
        return [*dict.fromkeys(one.profile for one in reports(self.root))]

    def study(self, name: str) -> OpenStudy:
        """Return a study by its name, a run's id or a report's ref. Raise UserError for a study without a report."""
        if (found := catalog.find(self.root, name)).kind != "report":
            raise UserError(f"{found} is not a report; the studies of {self.root} are {', '.join(self.studies)}")
        return OpenStudy(self.root, str(found))

    def sql(self, statement: str) -> pa.Table:
        """Return the answer to one SELECT over all artifacts, as `varband store sql` does."""
        return catalog.ask(self.root, statement)


def open_store(root: str | Path) -> OpenStore:
    """Open a root: a folder, or s3://bucket/prefix. Raise UserError if no store is there."""
    folder = root_folder(str(root))
    if not folder.is_dir():
        raise UserError(f"{root}: this folder does not exist; varband run demo --root {root} creates it")
    return OpenStore(folder.resolve())


def notebook_of(study: OpenStudy) -> dict[str, Any]:
    """Return a Jupyter notebook (nbformat 4.5) over the tables of a study."""
    opening = f"""\
import duckdb
from IPython.display import SVG
from varband import open_store

study = open_store({str(study.root)!r}).study({study.report!r})
study.tables"""
    drawn = next(name for name in study.tables if FIGURES[name].chart and study.table(name).num_rows)
    cells: list[tuple[str, str]] = [
        ("markdown", f"# Report {study.report}\n\nEach table is an Arrow table, which DuckDB reads by its name."),
        ("code", opening),
        ("code", 'summary = study.table("summary")\nduckdb.sql("from summary")'),
        ("code", f"SVG(study.svg({drawn!r}))"),
        ("markdown", "Any question about the rollouts of the final evaluation:"),
        ("code", f'rollouts = study.rollouts()\nduckdb.sql("""{QUESTION}""")'),
    ]
    written = []
    for place, (kind, text) in enumerate(cells):
        ran = {"execution_count": None, "outputs": []} if kind == "code" else {}
        source = {"cell_type": kind, "id": f"cell-{place}", "metadata": {}, "source": text}
        written.append(source | ran)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": written, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
