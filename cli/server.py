"""`varband server start` and `deploy`, and `doctor`: what a team's operator needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options

if TYPE_CHECKING:
    from flows.server.deployments import Deployment


@click.group()
def server() -> None:
    """Start the team's Prefect server, and register deployments with it."""


@server.command()
@click.option("--host", default="127.0.0.1", help="An address of this machine.")
@click.option("--port", type=click.IntRange(1, 65535), default=4200)
@click.option("--open", "unprotected", is_flag=True, help="Serve without a password where none is set.")
def start(host: str, port: int, unprotected: bool) -> None:
    """Start the team's Prefect server, on the database of PREFECT_API_DATABASE_CONNECTION_URL.

    It is `prefect server start` with a password, which the first start makes; and after a time without the server a run
    at work is not taken for lost. Without a password any account of this machine could run code as this user.
    """
    from flows.server.start import start as start_server

    start_server(host, port, unprotected=unprotected)


@server.command()
@click.argument("study", metavar="[STUDY.toml]", required=False)
@options.as_json
def deploy(study: str | None, as_json: bool) -> None:
    """Register pools, queues, deployments and automations with the server at PREFECT_API_URL. May be repeated.

    With STUDY.toml also deployments of that study alone, its form filled in, and its adapters every night.

    Code and forms are renewed. What people decided there stays: paused, parameters, schedules, queues, limits. Delete
    a deployment in the UI and deploy again to have it as the project suggests.
    """
    from flows.server.deployments import register

    registered = [*register(_deployments_of(study) if study else ())]
    options.tell({"registered": registered}, registered, json=as_json)


def _deployments_of(word: str) -> tuple[Deployment, ...]:
    """Errors: UserError for a file with mistakes, before the server is asked for anything."""
    from flows.server.deployments import of_study
    from flows.study.request import file_of, named_in, profile_of, text_of

    text, found = text_of(word), file_of(word)
    title = profile_of(word, text).called
    if found is None:
        return of_study(title, {"profile": word})
    path, question = found
    return of_study(title, {"file": text, "question": question, "name": "" if named_in(text) else path.stem})


@click.command()
@options.root
@options.as_json
def doctor(root: Path, as_json: bool) -> None:
    """Check root, disk, versions, GPUs, server, pools and workers; say what to fix. Exit code 1 if anything must be."""
    from flows.upkeep.doctor import examine

    checks, colours = examine(root), {"ok": "green", "warn": "yellow", "fail": "red"}
    if as_json:
        options.write_json(checks)
    for check in () if as_json else checks:
        mark = click.style(
            f"{check.state.upper() if check.state == 'fail' else check.state:<4}", fg=colours[check.state]
        )
        click.echo(f"{mark} {check.what:<10} {check.found}" + (f"\n     → {check.fix}" if check.fix else ""))
    sys.exit(1 if any(check.state == "fail" for check in checks) else 0)
