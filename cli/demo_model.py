"""`varband demo-model`: makes the demo's base model again."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from cli import options
from storage.errors import UserError


@click.command("demo-model")
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps, if not those of the committed checkpoint.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the weights and of the data.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Part of the result.")
@click.option("--force", is_flag=True, help="Write over a model that is already there.")
@options.as_json
def demo_model(out: Path, steps: int | None, seed: int, threads: int, force: bool, as_json: bool) -> None:
    """Pretrain the demo's base model into the folder OUT, measure it and write its model card. About six minutes."""
    if (out / "model.safetensors").exists() and not force:
        raise UserError(f"{out}: a model is there already; name another folder, or write over it with --force")
    from tasks.engines.environment import quiet_libraries

    quiet_libraries()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tasks.engines.demo.card import measure, write_card
    from tasks.engines.demo.pretrain import PretrainConfig, pretrain

    config = replace(PretrainConfig(), seed=seed)
    config = replace(config, steps=steps) if steps else config
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("pretraining", total=config.steps, loss="")
        made = pretrain(
            config, out, threads, lambda step, loss: bar.update(task, completed=step, loss=f"{loss:.3f} nats a token")
        )
    measured = measure(out, progress=lambda arm: console.print(f"measuring {arm}"))
    given = (f" --steps {steps}" if steps else "") + (f" --seed {seed}" if seed else "")
    given += (f" --threads {threads}" if threads != 2 else "") + (" --force" if force else "")
    where = out.name if out.is_absolute() else out.as_posix()
    write_card(out, config, made, measured, f"varband demo-model {where}{given}")
    if as_json:
        click.echo(json.dumps({"model": str(out), "measured": [asdict(m) for m in measured]}))
        return
    for m in measured:
        click.echo(
            f"{m.arm:<11} pass@1 {m.pass_at_1:.3f}  bands {m.all_zero}/{m.variance}/{m.all_one}"
            f"  tokens {m.mean_tokens:.1f}"
        )
    click.echo(f"model: {out}")
