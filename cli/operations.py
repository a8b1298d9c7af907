"""`varband deploy`, `doctor`, `resume`: what a team does every day."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import completion, options

if TYPE_CHECKING:
    from flows.server.deployments import Deployment


@click.command()
@click.argument("run", metavar="RUN", shell_complete=completion.runs)
@options.root
@options.budget
@options.anyway
@options.as_json
def resume(run: str, root: Path, budget: str | None, anyway: bool, as_json: bool) -> None:
    """Go on with RUN, a parked, crashed or interrupted run of this root: its id (`varband runs`), or its study's name.

    The budget is the whole run's: what was spent before counts. Without --budget the run's own limits hold.
    """
    from cli.run import carry_out
    from flows.study.request import Request
    from storage.records.runs import read_run, run_named

    record = run_named(root, run) or read_run(root, run)
    if record.flow_run is not None and _resumed_on_server(record.flow_run, record.budget, budget, anyway):
        click.echo(f"{run}: resumed on the server; a worker goes on with it")
        return
    kept = ",".join(f"{name}={limit!r}" for name, limit in record.budget.items())
    request = Request.from_json(record.request)
    more = (options.ANYWAY,) if anyway else ()
    request = replace(request, settings=(*request.settings, *more))
    carry_out(request, root, budget or kept or None, as_json=as_json)


def _resumed_on_server(flow_run: str, limits: dict[str, float], budget: str | None, anyway: bool) -> bool:
    """True if the run waits on a Prefect server and was told to go on. The form gets what --budget adds."""
    if not os.environ.get("PREFECT_API_URL"):
        return False
    from flows.server.setup import resume_suspended

    return resume_suspended(flow_run, limits, budget, anyway=anyway)


@click.command()
@options.root_there
@options.as_json
def runs(root: Path, as_json: bool) -> None:
    """Runs of this root: state, stage, spending."""
    from cli.tables import print_table
    from storage.records.runs import runs_table

    print_table(runs_table(root), as_json=as_json)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="An address of this machine.")
@click.option("--port", type=click.IntRange(1, 65535), default=4200, show_default=True)
@click.option("--open", "unprotected", is_flag=True, help="Serve without a password where none is set.")
def server(host: str, port: int, unprotected: bool) -> None:
    """Start the team's Prefect server, on the database of PREFECT_API_DATABASE_CONNECTION_URL.

    It is `prefect server start` with a password, which the first start makes; and after a time without the server a run
    at work is not taken for lost. Without a password any account of this machine could run code as this user.
    """
    from flows.server.start import start

    start(host, port, unprotected=unprotected)


@click.command()
@click.argument("study", metavar="[STUDY.toml]", required=False)
@click.option("--reset", is_flag=True, help="Say what people decided otherwise than the project suggests.")
@click.option("--yes", is_flag=True, help="With --reset: overwrite it.")
@options.as_json
def deploy(study: str | None, reset: bool, yes: bool, as_json: bool) -> None:
    """Register pools, queues, deployments and automations with the server at PREFECT_API_URL. May be repeated.

    With STUDY.toml also deployments of that study alone, its form filled in, and its adapters every night.

    Code and forms are renewed. What people decided there stays: paused, parameters, schedules, queues, limits.
    """
    from flows.server import setup

    if yes and not reset:
        raise click.UsageError("--yes belongs to --reset")
    if study and reset:
        raise click.UsageError("--reset is about everybody's deployments; leave STUDY.toml out")
    own, beside = _deployments_of(study) if study else ((), [])
    said = setup.reset(really=yes) if reset else chain(beside, setup.register(own))
    if as_json:
        click.echo(json.dumps({"overwritten" if yes else "would_overwrite" if reset else "registered": list(said)}))
        return
    lines = [click.echo(line) for line in said]
    if reset and not yes:
        click.echo("--yes overwrites it" if lines else "nothing was decided otherwise")


def _deployments_of(word: str) -> tuple[tuple[Deployment, ...], list[str]]:
    """And what is to be said of the file. Errors: UserError for one with mistakes, before the server is asked for
    anything."""
    from flows.server.deployments import of_study
    from flows.study.lookup import beside, file_of, named_in, profile_of, text_of

    text, asked = text_of(word), file_of(word)
    title = profile_of(word, text).called
    if asked is None:
        return of_study(title, {"profile": word}), []
    path, question = asked
    own = {"file": text, "question": question, "name": "" if named_in(text) else path.stem}
    return of_study(title, own), beside(word, text)


@click.command()
@options.root
@options.as_json
def doctor(root: Path, as_json: bool) -> None:
    """Check root, disk, versions, GPUs, server, pools and workers; say what to fix. Exit code 1 if anything must be."""
    import sys

    import orjson

    from flows.upkeep.doctor import examine

    if not root.exists():  # a file in its place is one of the faults that are looked for
        options.check_there(root)
    checks = examine(root)
    if as_json:
        click.echo(orjson.dumps(checks).decode())
    else:
        for check in checks:
            mark = {
                "ok": click.style("ok  ", fg="green"),
                "warn": click.style("warn", fg="yellow"),
                "fail": click.style("FAIL", fg="red"),
            }[check.state]
            click.echo(f"{mark} {check.what:<10} {check.found}" + (f"\n     → {check.fix}" if check.fix else ""))
    sys.exit(1 if any(check.state == "fail" for check in checks) else 0)
