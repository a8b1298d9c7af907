"""`varband demo-server`: server, worker, dashboards and one study, to see everything at once."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click


@click.command("demo-server")
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), help="Keep everything in this folder.")
@click.option("--port", type=click.IntRange(1, 65535), default=4200, show_default=True, help="Of the server.")
@click.option("--app-port", type=click.IntRange(1, 65535), default=8501, show_default=True, help="Of the dashboards.")
@click.option("--set", "settings", metavar="FIELD=VALUE", multiple=True, help="Change a number of the demo.")
@click.option("--until-done", is_flag=True, help="End when the study has ended instead of waiting for Ctrl-C.")
def demo_server(root: Path | None, port: int, app_port: int, settings: tuple[str, ...], until_done: bool) -> None:
    """Start a Prefect server, a worker and the dashboards, and run the demo on them. Ctrl-C ends all of it.

    Without --root everything lies in a temporary folder and is dropped at the end.
    """
    import signal
    import time
    from importlib.util import find_spec

    from flows.server.everything import everything
    from storage.errors import UserError

    for package, extra in (("prefect", "prefect"), ("streamlit", "app")):
        if find_spec(package) is None:
            raise UserError(f"demo-server needs {package}: install varband[{extra}]")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it
    with ExitStack() as stack:
        home = Path(root or stack.enter_context(tempfile.TemporaryDirectory(prefix="varband-demo-"))).resolve()
        try:
            up = stack.enter_context(everything(home / "server", home / "root", port, app_port, click.echo))
            run = up.study("demo", settings)
            click.echo(f"server      http://127.0.0.1:{port}")
            click.echo(f"password    {up.password}  (its UI asks for it)")
            click.echo(f"dashboards  {up.app}  (they fill as the study goes on)")
            click.echo(f"the study   {up.page(run)}")
            click.echo(f"store       {up.root}" + ("" if root else "  (dropped at the end; --root keeps it)"))
            click.echo(f"logs        {home / 'server'}/*.log")
            click.echo("Ctrl-C ends all of it")
            for state in up.watch(run):
                click.echo(f"demo: {state}")
            while not until_done:
                up.check()
                time.sleep(2.0)
        except KeyboardInterrupt:
            click.echo("ending server, worker and dashboards …")
