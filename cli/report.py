"""`varband report` and `serve`: write a report, compare two reports, open the dashboards."""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import click
import pyarrow as pa

from cli import options
from cli.tables import print_table
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.catalog import find
from storage.reading.figures import FIGURES, figure_named
from storage.reading.query_cache import ask, figures_beside, names_of, reports, sentences, settings_apart, sources

#: Settings of the dashboards' server. VARBAND_URL is the address of a proxy in front of it.
SERVER = {
    "server.address": "127.0.0.1",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "client.showErrorLinks": "false",
    "theme.primaryColor": "#0072B2",
}


@click.command()
@click.argument("ref", required=False, shell_complete=options.runs)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder to write to."
)
@click.option("--query", metavar="NAME", help="Print the rows of the figure NAME instead of writing the report.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the summary, or the rows of --query, as CSV.")
@click.option(
    "--against",
    metavar="OTHER",
    multiple=True,
    shell_complete=options.runs,
    help="Compare the report with this other report. May be repeated.",
)
@options.root_there
@options.as_json
def report(
    ref: str | None, output: Path, query: str | None, as_csv: bool, against: tuple[str, ...], root: Path, as_json: bool
) -> None:
    """Write the report REF (default: the newest) as HTML and Markdown. REF is a report, a run's id or a study's name;
    it may be abbreviated."""
    found = report_named(root, ref)
    if as_csv:
        import pyarrow.csv

        from cli.tables import flat

        pyarrow.csv.write_csv(flat(rows_of(root, found, figure_named(query or "summary").query)), sys.stdout.buffer)
        return
    if query is not None:
        print_table(rows_of(root, found, figure_named(query).query), as_json=as_json, title=query)
        return
    for other in against:
        _compare(root, found, report_named(root, other), as_json=as_json)
    if against:
        return
    store = Store(root)
    store.check(Ref.parse(found))
    output.mkdir(parents=True, exist_ok=True)
    files = [str(output / f"{found}.{ending}") for ending in ("html", "md")]
    for file in files:
        Path(file).write_bytes((store.files(Ref.parse(found)) / f"report{Path(file).suffix}").read_bytes())
    options.print_result({"report": found, "files": files}, files, json=as_json)


def _compare(root: Path, one: str, other: str, *, as_json: bool) -> None:
    """Print the settings in which two studies differ, and their figures side by side, paired by problem."""
    if one == other:
        raise UserError(f"--against: report {one} would be compared with itself; choose another report")
    apart, rows = settings_apart(root, one, other), figures_beside(root, one, other)
    if as_json:
        options.write_json({"reports": [one, other], "settings": apart, "figures": rows.to_pylist()})
        return
    click.echo("\n".join([f"{one} and {other}", *sentences(rows, *names_of(root, one, other)), ""]))
    for path, values in apart.items():
        click.echo(f"  {path}: " + " → ".join("–" if value is None else str(value) for value in values))
    title = "held-out accuracy as shares; difference_pp: the second minus the first, over problems"
    print_table(rows, as_json=False, title=title)


def report_named(root: Path, text: str | None) -> str:
    """Return the ref of a report. Raise UserError if there is no report, or if the artifact is not a report."""
    if text is not None:
        if (found := find(root, text)).kind != "report":
            raise UserError(f"{found} is not a report (see: varband store ls report)")
        return str(found)
    newest = next((one.ref for one in reports(root) if one.ref.startswith("report-")), None)
    if newest is None:
        raise UserError(f"there is no report under {root} yet; varband run demo makes one")
    return newest


def rows_of(root: Path, report: str, query: str) -> pa.Table:
    """Return the rows of a figure. Raise UserError if the report lacks the inputs of this figure."""
    try:
        return ask(root, report, query)
    except UserError:
        figure = FIGURES.get(query.removeprefix("report_"))
        if figure is None or sources(root, report, figure.sources[:1]):
            raise
        measures = next((one.measures for one in reports(root) if one.ref == report), ())
        raise UserError(f"{figure.name}: {figure.without_artifact(measures)}") from None


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=8501, help="Port to listen on.")
@click.option("--open", "browse", is_flag=True, help="Also open the dashboards in a browser.")
@options.root
def serve(port: int, browse: bool, root: Path) -> None:
    """Open the dashboards on 127.0.0.1. The dashboards only read the store. Stop with Ctrl-C."""
    if find_spec("streamlit") is None:
        raise UserError("the dashboards need streamlit: install varband[app]")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UserError(f"port {port} on 127.0.0.1 is taken: choose another with --port") from None
    # other host names are rejected, so that pages of other sites cannot reach the server (DNS rebinding)
    hosts = {"127.0.0.1", "localhost", urlsplit(os.environ.get("VARBAND_URL", "")).hostname}
    settings = [*SERVER.items(), ("server.port", port), ("server.headless", str(not browse).lower())]
    settings += [("server.allowedHosts", host) for host in sorted(filter(None, hosts))]
    home = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"VARBAND_ROOT": str(root.resolve()), "PYTHONPATH": path}
    click.echo(f"varband: dashboards of {root} on http://127.0.0.1:{port} (Ctrl-C stops them)")
    sys.stdout.flush()
    # the server replaces this process, so that stopping `serve` stops it
    words = [f"--{name}={value}" for name, value in settings]
    os.execve(sys.executable, [sys.executable, "-m", "dashboards", *words], environment)
