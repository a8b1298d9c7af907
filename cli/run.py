"""`varband run` and `varband plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli import options


def _study_options(command: Callable[..., None]) -> Callable[..., None]:
    path = click.Path(path_type=Path)
    for option in (
        click.argument("profile"),
        options.root,
        click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE",
                     help="Change a number of the profile, e.g. training.learning_rate=1e-3. May be repeated."),
        click.option("--arms", help="Arms to run, comma-separated."),
        click.option("--seeds", help="Training seeds, comma-separated."),
        click.option("--pool", "pools", type=path, multiple=True, help="A JSONL or Parquet file of problems."),
        click.option("--limit", type=click.IntRange(min=1), help="Use the first N problems only."),
        click.option("--data", type=path, envvar="VARBAND_DATA", help="Folder with the sources' files."),
        click.option("--model", type=path, help="Folder of the base model."),
        click.option("--encoder", type=path, help="Folder of the sentence encoder."),
    ):  # fmt: skip
        command = option(command)
    return command


def _study(profile: str, settings: tuple[str, ...], arms: str | None, seeds: str | None, pools: tuple[Path, ...],
           limit: int | None, data: Path | None, model: Path | None, encoder: Path | None) -> Any:  # fmt: skip
    from flows.resolve import overridden, profile_named, resolve

    wishes = list(settings)
    wishes += [f"arms={arms}"] if arms else []
    wishes += [f"seeds={seeds},"] if seeds else []
    wishes += [f"pool.limit={limit}"] if limit else []
    return resolve(overridden(profile_named(profile), wishes), model=model, encoder=encoder, data=data, pools=pools)


@click.command()
@_study_options
@click.option("--engine", type=click.Choice(["auto", "vllm", "transformers"]), default="auto", show_default=True)
@click.option("--plain", is_flag=True, help="Run in this process, without Prefect.")
@options.as_json
def run(profile: str, root: Path, engine: str, plain: bool, as_json: bool, **wishes: Any) -> None:
    """Run a study: make what is missing, reuse what is there, end with the report."""
    from cli.view import Watch
    from flows.run import execute, plan
    from storage.store import Store

    study, store = _study(profile, **wishes), Store(root)
    store.prepare()
    planned = plan(study, store)
    watch = Watch(study.profile.name, planned, as_json=as_json)
    if all(step.reused for step in planned):
        watch.nothing_to_do()
        watch.finish(store, planned[-1].step.ref)
        return
    with watch:
        from flows.orchestration import orchestrated

        hardware = study.profile.hardware
        report = (execute if plain else orchestrated)(study, store, hardware, watch.on_progress)
    watch.finish(store, report)


@click.command()
@_study_options
@options.as_json
def plan(profile: str, root: Path, as_json: bool, **wishes: Any) -> None:
    """What a run would make and what it would reuse, stage by stage. Makes nothing."""
    from cli.view import Watch
    from flows.run import plan as plan_of
    from storage.store import Store

    study = _study(profile, **wishes)
    Watch(study.profile.name, plan_of(study, Store(root)), as_json=as_json).plan()
