"""`varband export figure` and `table`: what a report shows, for a paper; and `export DIR`, a study elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import completion, options
from cli.copies import study

if TYPE_CHECKING:
    import pyarrow as pa

    from storage.reading.figures import Figure


#: In which files each kind is written, the usual one first.
FORMS = {"figure": ("pdf", "svg"), "table": ("csv", "latex")}


class Form(click.Choice[str]):
    """One of a kind's; of another kind's the sentence names that."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(FORMS[kind])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from storage.errors import UserError

        if value in self.choices:
            return value
        other = next((f"; {value} is of a {kind}: varband export {kind}" for kind in FORMS if value in FORMS[kind]), "")
        raise UserError(f"--format {value[:40]}: a {self.kind} is exported as {' or '.join(self.choices)}{other}")


def form(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--format", "form", type=Form(kind), default=FORMS[kind][0], show_default=True)


class Exports(click.Group):
    """A word that names no form of export is the folder that a study is copied into."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named or not args else ["study", *args])


@click.group(cls=Exports)
def export() -> None:
    """A study into another root (`export DIR`), or a figure or a table of a report, for a paper.

    A folder called like one of the commands is written ./figure.
    """


export.add_command(study)
what = click.argument("name")
of = click.argument("ref", required=False, shell_complete=completion.runs)
into = click.option(
    "--output", "-o", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder.  [default: here]"
)


@export.command()
@what
@of
@form("figure")
@into
@options.root_there
def figure(name: str, ref: str | None, form: str, output: Path, root: Path) -> None:
    """The charts of figure NAME of the report REF (or the newest), a PDF or SVG file each."""
    from storage.errors import UserError
    from storage.reading.charts import as_pdf, as_svg

    asked, charts = _charts(root, ref, name)
    if not charts:
        raise UserError(f"{asked}: nothing of it is drawn; its numbers: varband export table {asked}")
    output.mkdir(parents=True, exist_ok=True)
    for place, chart in enumerate(charts, start=1):
        path = output / (f"{asked}.{form}" if len(charts) == 1 else f"{asked}-{place}.{form}")
        path.write_bytes(as_pdf(chart) if form == "pdf" else as_svg(chart, page="white").encode())
        click.echo(path)


@export.command()
@what
@of
@form("table")
@into
@options.root_there
def table(name: str, ref: str | None, form: str, output: Path, root: Path) -> None:
    """The rows of the figure or table NAME of the report REF (or the newest): every digit as CSV, or as printed, for
    LaTeX with booktabs."""
    import pyarrow.csv

    from cli.look import report_named, rows_of
    from tasks.report.tables import as_latex, shown

    asked = _figure_named(name)
    rows = rows_of(root, report_named(root, ref), asked.query)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{asked.name}.{'csv' if form == 'csv' else 'tex'}"
    if form == "csv":
        pyarrow.csv.write_csv(flat(rows), path)
    else:
        printed = shown(rows.to_pylist(), rows.column_names, most=max(1, rows.num_rows))
        path.write_text(as_latex(printed, asked.title), encoding="utf-8")
    click.echo(path)


def flat(rows: pa.Table) -> pa.Table:
    """Write lists into one cell, their parts apart by semicolons, and a quote before a text that a spreadsheet would
    compute: a model may have written it."""
    import pyarrow as pa

    for place, field in enumerate(rows.schema):
        values = rows[field.name].to_pylist()
        if pa.types.is_nested(field.type):
            values = [None if value is None else "; ".join(map(str, value)) for value in values]
        elif not pa.types.is_string(field.type):
            continue
        texts = [f"'{text}" if text and text[0] in "=+-@\t\r" else text for text in values]
        rows = rows.set_column(place, field.name, pa.array(texts, pa.string()))
    return rows


def _figure_named(name: str) -> Figure:
    from storage.errors import UserError, did_you_mean
    from storage.reading.figures import FIGURES

    try:
        return FIGURES[name.removeprefix("report_")]
    except KeyError:
        hint = did_you_mean(name, FIGURES)
        raise UserError(f"no figure or table '{name[:60]}'{hint} (known: {', '.join(FIGURES)})") from None


def _charts(root: Path, ref: str | None, name: str) -> tuple[str, list[dict[str, Any]]]:
    """The figure's name, and its charts as the report has them."""
    from cli.look import report_named, rows_of
    from storage.reading.charts import drawn
    from storage.reading.query_cache import reports

    asked, found = _figure_named(name), report_named(root, ref)
    arms = next((one.arms for one in reports(root) if one.ref == found), ())
    return asked.name, drawn(asked.chart, rows_of(root, found, asked.query), arms)
