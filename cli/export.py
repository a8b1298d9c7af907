"""`varband export`: a study in another root; a report's figures and tables for a paper; a page of chosen rollouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import options

if TYPE_CHECKING:
    import pyarrow as pa

    from storage.reading.figures import Figure


#: In which files each kind is written, the usual one first.
FORMS = {"figure": ("pdf", "svg"), "table": ("csv", "latex")}


def form(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--format", "form", type=click.Choice(FORMS[kind]), default=FORMS[kind][0], show_default=True)


@click.group()
def export() -> None:
    """Copy a study to another root; write a report's figures, tables and rollouts."""


@export.command()
@click.argument("target", type=options.Root())
@click.option("--run", metavar="RUN", help="What this run has made and needs alone; else all of the root.")
@click.option("--without", type=click.Choice(["weights"]), help="A light copy, without adapters of finished trainings.")
@click.option("--renew", is_flag=True, help="Replace what TARGET holds otherwise, as in a backup.")
@options.root_there
@options.as_json
def study(target: Path, run: str | None, without: str | None, renew: bool, root: Path, as_json: bool) -> None:
    """Copy a study into TARGET, a root of its own then; one that has some of it already gets what it lacks.

    A light copy is reported on and audited like the whole; what needs the weights says so.
    """
    import dataclasses

    from storage.records.copies import copy_study

    copied = copy_study(root, target, run, weights=without is None, renew=renew)
    if as_json:
        options.write_json(dataclasses.asdict(copied))
        return
    light = f"; {copied.left_bytes / 1e6:.1f} MB of weights are not in {target}" if copied.left_bytes else ""
    click.echo(
        f"{copied.artifacts:,} artifacts and {copied.shards:,} shards of the ledger copied, {copied.bytes / 1e6:.1f}"
        f" MB{light}"
    )
    if copied.others:
        click.echo(f"{copied.others:,} artifacts are there in another making, which stays")
    click.echo(f"go on with it: --root {target}, and --model sha256:… where the base model is not")


what = click.argument("name")
of = click.argument("ref", required=False, shell_complete=options.runs)
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

    from cli.report import report_named, rows_of
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


@export.command()
@click.argument("what")
@click.option(
    "--problems", help="Problems to show, comma-separated; their ids may be cut short.  [default: the first 12]"
)
@click.option(
    "--set",
    "rollouts",
    type=click.Choice(["final", "screenings", "evaluations"]),
    default="final",
    show_default=True,
    help="Which rollouts of the run.",
)
@click.option("--each", type=click.IntRange(1, 16), default=1, show_default=True, help="Rollouts a policy and problem.")
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@options.root
@options.as_json
def gallery(
    what: str, problems: str | None, rollouts: str, each: int, output: Path | None, root: Path, as_json: bool
) -> None:
    """A static page with the rollouts of chosen problems side by side.

    WHAT is a report (it may be cut short) or a transcripts.json of a published case study.
    """
    from cli.report import report_named
    from dashboards.gallery import from_report, from_transcripts, write

    source = Path(what)
    if source.suffix == ".json" or source.is_file():
        page, name = from_transcripts(source, _listed(problems)), f"gallery-{source.stem}.html"
    else:
        found = report_named(root, what)
        page, name = from_report(root, found, _listed(problems), rollouts, each), f"gallery-{found}.html"
    written = write(page, output or Path(name))
    if as_json:
        told = {"source": page.source, "file": str(written), "problems": [item.title for item in page.items]}
        options.write_json(told)
        return
    click.echo(written)


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


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
    from cli.report import report_named, rows_of
    from storage.reading.charts import drawn
    from storage.reading.query_cache import reports

    asked, found = _figure_named(name), report_named(root, ref)
    arms = next((one.arms for one in reports(root) if one.ref == found), ())
    return asked.name, drawn(asked.chart, rows_of(root, found, asked.query), arms)
