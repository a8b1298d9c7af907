"""`varband export` and `import`: copy studies, write figures, tables and galleries, and import rollouts."""

import json
from pathlib import Path

import click

from cli import options
from cli.report import report_named, rows_of
from flows import exported
from flows.exported import FORMATS
from flows.imported import import_rollouts
from flows.running.plan import plan
from flows.running.tracking import send_finished, token, tracker_run
from flows.study.request import Request
from storage.artifacts.store import Store
from storage.errors import UserError, check_known
from storage.reading.catalog import find
from storage.reading.charts import as_pdf, as_svg, specs_of
from storage.reading.figures import figure_named
from storage.reading.opened import notebook_of, open_store
from storage.reading.query_cache import reports
from storage.records.copies import copy_study
from storage.records.runs import read_run, run_named, write_run
from storage.roots import root_option
from tasks.engines.trackers import TRACKERS
from tasks.report.tables import as_latex, printed_table

folder = click.option(
    "--output", "-o", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder to write to."
)


@click.group()
def export() -> None:
    """Copy a study to another root; write figures, tables and rollouts; send them to trackers and the hub."""


@export.command()
@click.argument("target", type=options.Root())
@click.option("--run", metavar="RUN", help="Copy only the artifacts that this run made or needs.  [default: all]")
@click.option("--without", type=click.Choice(["weights"]), help="Leave out the adapters of finished trainings.")
@click.option(
    "--renew", is_flag=True, help="Also replace artifacts that TARGET has in another version: TARGET becomes a backup."
)
@options.root_there
@options.as_json
def study(target: Path, run: str | None, without: str | None, renew: bool, root: Path, as_json: bool) -> None:
    """Copy a root, or one run of it, to TARGET. If TARGET already has some of the artifacts, only the missing ones are
    copied. You can report and audit a copy without weights; commands that need the weights stop with an error."""
    found = run_named(root, run) if run else None
    copied = copy_study(root, target, found.id if found else run, weights=without is None, renew=renew)
    light = f"; {copied.left_bytes / 1e6:.1f} MB of weights are not in {target}" if copied.left_bytes else ""
    made = f"{copied.artifacts:,} artifacts and {copied.shards:,} shards of the ledger copied"
    others = f"{copied.others:,} artifacts differ in {target} and stay (see --renew)" if copied.others else ""
    onward = f"use it with --root {target}, and --model sha256:… if the base model is not on that machine"
    lines = filter(None, (f"{made}, {copied.bytes / 1e6:.1f} MB{light}", others, onward))
    options.print_result(copied, lines, json=as_json)


@export.command()
@click.argument("name")
@click.argument("ref", required=False, shell_complete=options.runs)
@click.option("--format", "form", type=click.Choice(["pdf", "svg", "tex"]), default="pdf", help="Format of the file.")
@folder
@options.root_there
def figure(name: str, ref: str | None, form: str, output: Path, root: Path) -> None:
    """Write a figure of a report: its charts as PDF or SVG, or its table for LaTeX (booktabs) with the digits that the
    report prints. For CSV: `varband report --query NAME --csv`.

    NAME is the figure's name. REF is a report (default: the newest), a run's id or a study's name.
    """
    named, found = figure_named(name), report_named(root, ref)
    rows = rows_of(root, found, named.query)
    if form == "tex":
        printed = printed_table(rows.to_pylist(), rows.column_names, most=max(1, rows.num_rows))
        texts = [as_latex(printed, named.title).encode()]
    else:
        arms = next((one.arms for one in reports(root) if one.ref == found), ())
        charts = specs_of(named.chart, rows, arms)
        texts = [as_pdf(chart) if form == "pdf" else as_svg(chart, page="white").encode() for chart in charts]
    if not texts:
        raise UserError(f"{named.name} has no chart; print its numbers: varband report --query {named.name} --csv")
    output.mkdir(parents=True, exist_ok=True)
    for place, text in enumerate(texts, start=1):
        path = output / (f"{named.name}.{form}" if len(texts) == 1 else f"{named.name}-{place}.{form}")
        path.write_bytes(text)
        click.echo(path)


@export.command()
@click.argument("ref", shell_complete=options.runs)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "inspect", "hf"]), default="jsonl", help="Format of the files."
)
@options.root_there
@options.as_json
def rollouts(ref: str, folder: Path, form: str, root: Path, as_json: bool) -> None:
    """Write graded rollouts to FOLDER: JSONL, logs of inspect, or a dataset folder for the Hugging Face hub.

    REF is one artifact of rollouts, or a report, run or study, whose final evaluation is written. With --format hf, REF
    may also be a training; its last adapter is written with a model card.
    """
    found = find(root, ref)
    folder.mkdir(parents=True, exist_ok=True)
    files = [str(path) for path in FORMATS[form](Store(root), found, folder)]
    options.print_result({"source": str(found), "files": files}, files, json=as_json)


@export.command()
@click.argument("ref", shell_complete=options.runs)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@options.root_there
def notebook(ref: str, output: Path | None, root: Path) -> None:
    """Write a Jupyter notebook that opens the tables of a study in DuckDB, with a chart of the gains. REF is a report,
    a run's id or a study's name."""
    found = report_named(root, ref)
    path = output or Path(f"{found}.ipynb")
    path.write_text(json.dumps(notebook_of(open_store(root).study(found)), indent=1), encoding="utf-8")
    click.echo(path)


@export.command()
@click.argument("ref", shell_complete=options.runs)
@click.argument("name", metavar="OWNER/NAME")
@click.option("--private", is_flag=True, help="Create a private repository.")
@options.root_there
@options.as_json
def push(ref: str, name: str, private: bool, root: Path, as_json: bool) -> None:
    """Upload to the Hugging Face hub. If REF is a training, its last adapter is uploaded as a model; else its rollouts
    are uploaded as a dataset. Log in with `hf auth login` or set HF_TOKEN."""
    found = find(root, ref)
    where = exported.push(Store(root), found, name, private=private)
    options.print_result({"source": str(found), "url": where}, [where], json=as_json)


@export.command()
@click.argument("ref", shell_complete=options.runs)
@click.option("--track", "trackers", multiple=True, required=True, metavar="NAME", help="Tracker. May be repeated.")
@options.root_there
def track(ref: str, trackers: tuple[str, ...], root: Path) -> None:
    """Send a study to experiment trackers: trackio, wandb, mlflow or tensorboard. REF is a run's id or a study's name.
    `varband run --track NAME` follows a study while it runs. A second call adds only what the tracker lacks."""
    for name in trackers:
        check_known("tracker", name, TRACKERS)
    run, store = run_named(root, ref) or read_run(root, ref), Store(root)
    study = Request.from_json(run.request).study(store, planning=True)
    if not run.tracked_as:
        run = run.model_copy(update={"tracked_as": token(run.id)})
        write_run(root, run)
    of = tracker_run(study, store, run)
    sent = send_finished(trackers, of, store, plan(study, store))
    click.echo(f"{run.id}: {sent} artifacts sent to {' and '.join(trackers)} as {of.group}")


@export.command()
@click.argument("ref")
@click.option(
    "--problems",
    default="",
    show_default="12 problems",
    help="Problems to show, comma-separated; ids may be abbreviated.",
)
@click.option(
    "--set",
    "rollouts",
    type=click.Choice(["final", "screenings", "evaluations"]),
    default="final",
    help="Rollouts to show: final evaluation, screenings, or evaluations during training.",
)
@click.option("--each", type=click.IntRange(1, 16), default=1, help="Rollouts per policy and problem.")
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@options.root
@options.as_json
def gallery(ref: str, problems: str, rollouts: str, each: int, output: Path | None, root: Path, as_json: bool) -> None:
    """Write an HTML page with rollouts side by side. REF is a report's ref, which may be abbreviated."""
    from dashboards.gallery import from_report, write

    listed, name = [part.strip() for part in problems.split(",") if part.strip()], report_named(root, ref)
    page = from_report(root, name, listed, rollouts, each)
    written = write(page, output or Path(f"gallery-{name}.html"))
    titles = [item.title for item in page.items]
    result = {"source": page.source, "file": str(written), "problems": titles}
    options.print_result(result, [str(written)], json=as_json)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--arm", "arms", multiple=True, help="Name of each file's arm, or one name for all files.")
@click.option(
    "--pool",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with problems and golds, if the imported files have none.",
)
@click.option("--name", default="imported", help="Name of the new study.")
@options.root
@options.as_json
def import_(
    files: tuple[Path, ...], arms: tuple[str, ...], pool: Path | None, name: str, root: Path, as_json: bool
) -> None:
    """Import rollouts of other tools.

    FILES: JSONL, CSV or Parquet with a column completion, samples of lm-eval, .eval files of inspect, traces of
    verifiers, completions of TRL, or folders of these. Each file is an arm; files with the same --arm are one arm. The
    command grades the rollouts, stores them in the ledger, and writes NAME.toml, a study that compares the arms.
    `varband run NAME.toml` makes its report without sampling.
    """
    store = Store(root)
    store.prepare()
    done = import_rollouts(files, arms, pool, name, store)
    lines = list[str]()
    for one in done.entered:
        words = f"{one.arm}: {one.rollouts} rollouts, {one.new} of them new, {one.correct} correct"
        if one.judged:
            words += f"; the other tool's verdict differs on {one.disagreements} of {one.judged}"
        lines.append(words)
    lines += [*done.notes, f"wrote {done.study}; next: varband run {done.study}{root_option(store.root)}"]
    options.print_result(done, lines, json=as_json)
