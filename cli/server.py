"""`varband server start` and `deploy`, `tinker serve` and `doctor`, for a team's operator."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from cli import options
from flows.server.deployments import Deployment, PoolTypes, of_study, register
from flows.server.start import start as start_server
from flows.study.request import file_of, named_in, profile_of, text_of
from flows.upkeep.doctor import examine
from storage.errors import UserError


@click.group()
def server() -> None:
    """Start the team's Prefect server, and register deployments with it."""


@server.command()
@click.option("--host", default="127.0.0.1", help="Address of this machine that the server listens on.")
@click.option("--port", type=click.IntRange(1, 65535), default=4200, help="Port to listen on.")
@click.option("--open", "unprotected", is_flag=True, help="Serve without a password if no password is set.")
def start(host: str, port: int, unprotected: bool) -> None:
    """Start the team's Prefect server with the database at PREFECT_API_DATABASE_CONNECTION_URL. It is `prefect server
    start` with a password and with settings that keep runs alive while the server is down. The first start creates the
    password. Without one, every account of this machine could run code as this user."""
    start_server(host, port, unprotected=unprotected)


@server.command()
@click.argument("study", metavar="[STUDY.toml]", required=False)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of a pool's workers, e.g. gpu=docker or gpu=kubernetes. May be repeated.",
)
@click.option("--image", default="", show_default=False, help="Image for workers in containers, as NAME@sha256:….")
@options.as_json
def deploy(study: str | None, pools: tuple[str, ...], image: str, as_json: bool) -> None:
    """Register pools, queues, deployments and automations with the server at PREFECT_API_URL. You can repeat this
    command.

    With STUDY.toml, also register deployments of this study and a nightly re-evaluation of its adapters. The form of
    the study contains the text of the file.

    Deploy again to update the code and the start forms in the UI. Pauses, parameters, schedules, queues and limits that
    you changed in the UI are kept. To reset a deployment, delete it in the UI and deploy again.
    """
    types = {name: of_type for name, _, of_type in (pool.partition("=") for pool in pools)}
    registered = [*register(_deployments_of(study) if study else (), PoolTypes(types, image))]
    options.print_result({"registered": registered}, registered, json=as_json)


def _deployments_of(word: str) -> tuple[Deployment, ...]:
    """Return the deployments of a study. Raise UserError for mistakes in the study's file, before the server is
    called."""
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
    """Check root, disk, versions, GPUs, server, pools and workers, and print how to fix what fails. Exit code 1 if a
    check fails."""
    checks, colours = examine(root), {"ok": "green", "warn": "yellow", "fail": "red"}
    if as_json:
        options.write_json(checks)
    for check in () if as_json else checks:
        mark = click.style(
            f"{check.state.upper() if check.state == 'fail' else check.state:<4}", fg=colours[check.state]
        )
        click.echo(f"{mark} {check.what:<10} {check.found}" + (f"\n     → {check.fix}" if check.fix else ""))
    sys.exit(1 if any(check.state == "fail" for check in checks) else 0)


@click.group()
def tinker() -> None:
    """Serve the Tinker API from this machine."""


@tinker.command()
@click.argument("model", default="demo")
@click.option("--name", help="Model name in clients' requests.  [default: the folder's name]")
@click.option("--port", type=click.IntRange(1, 65535), default=8702, help="Port to listen on.")
@click.option(
    "--lora-alpha", type=click.IntRange(min=1), default=32, help="LoRA alpha of every adapter; Tinker uses 32."
)
@click.option("--lora-rank", type=click.IntRange(min=1), default=32, help="Largest LoRA rank that vLLM serves.")
@click.option("--context", type=click.IntRange(min=2), default=4096, help="Longest prompt and completion, in tokens.")
@options.engine
@options.root
def serve(
    model: str, name: str | None, port: int, lora_alpha: int, lora_rank: int, context: int, engine: Any, root: Path
) -> None:
    """Serve MODEL (a name in a profile, or a folder) with the Tinker API on 127.0.0.1. In the official SDK set
    TINKER_BASE_URL=http://127.0.0.1:8702 and any TINKER_API_KEY that begins with tml-. Checkpoints are stored in the
    root's folder `tinker`. Stop with Ctrl-C."""
    if not find_spec("tinker") or not find_spec("fastapi"):
        raise UserError("this needs the Tinker SDK and FastAPI: install varband[tinker]")
    import uvicorn

    from flows.running.sessions import engines
    from flows.study.models import base_model, folder_of
    from tasks.domain.grading.grading import ActiveGrader
    from tasks.engines.hardware import Hardware
    from tasks.engines.model_checks import execution_on, positions
    from tasks.engines.model_files import read_config
    from tasks.engines.tinker_server.api import Api
    from tasks.engines.tinker_server.app import app_of

    folder = folder_of(model)
    base, longest = base_model(folder.name, folder), min(context, positions(folder) or context)
    hardware, place = Hardware(engine=engine, max_model_len=longest), root / "tinker"
    with engines(hardware, {base.sha256: folder}, ActiveGrader()) as tools:
        generator = tools.generator(base.sha256, lora_rank)
        execution = execution_on(hardware, read_config(folder))
        api = Api(folder, name or folder.name, place, generator, execution, alpha=lora_alpha, context=longest)
        click.echo(f"{api.name} at http://127.0.0.1:{port}, checkpoints in {place}; stop with Ctrl-C")
        uvicorn.run(app_of(api), host="127.0.0.1", port=port, log_level="warning")
        api.jobs.close()
