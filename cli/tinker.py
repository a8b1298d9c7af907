"""`varband tinker serve`: the Tinker API on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from cli import options
from storage.errors import UserError


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
    """Serve MODEL (a name in a profile, or a folder) by the Tinker API on 127.0.0.1, for the official SDK with
    TINKER_BASE_URL=http://127.0.0.1:8702 and any TINKER_API_KEY that begins with tml-. Checkpoints are kept in the
    root's folder `tinker`. Stop with Ctrl-C."""
    if not find_spec("tinker") or not find_spec("fastapi"):
        raise UserError("this needs the Tinker SDK and FastAPI: install varband[tinker]")
    import uvicorn

    from flows.running.sessions import engines
    from flows.study.models import base_model, folder_of
    from tasks.domain.grading.grading import ActiveGrader
    from tasks.engines.hardware import Hardware
    from tasks.engines.memory import execution_on
    from tasks.engines.model_checks import positions
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
