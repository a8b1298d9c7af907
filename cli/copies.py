"""`varband export DIR`: a study in another root."""

from __future__ import annotations

from pathlib import Path

import click

from cli import options
from storage.errors import printable


@click.command()
@click.argument("target", type=options.Root())
@click.option("--run", metavar="RUN", help="What this run has made and needs alone; else all of the root.")
@click.option("--without", type=click.Choice(["weights"]), help="A light copy: adapters and checkpoints stay behind.")
@click.option("--renew", is_flag=True, help="Replace what TARGET holds otherwise, as in a backup.")
@options.root_there
@options.as_json
def study(target: Path, run: str | None, without: str | None, renew: bool, root: Path, as_json: bool) -> None:
    """Copy a study into TARGET, a root of its own then; one that has some of it already gets what it lacks.

    A light copy is reported on and audited like the whole; what needs the weights says so.
    """
    import dataclasses

    import orjson

    from storage.records.copies import copy_study

    copied = copy_study(root, target, run, weights=without is None, renew=renew)
    if as_json:
        click.echo(orjson.dumps(dataclasses.asdict(copied)))
        return
    light = f"; {copied.left_bytes / 1e6:.1f} MB of weights are not in {target}" if copied.left_bytes else ""
    click.echo(
        f"{copied.artifacts:,} artifacts and {copied.shards:,} shards of the ledger copied, {copied.bytes / 1e6:.1f}"
        f" MB{light}"
    )
    for change in copied.changed:
        click.echo(printable(f"changed in {target}: {change}"))
    if copied.others:
        click.echo(f"{copied.others:,} artifacts are there in another making, which stays")
    click.echo(f"go on with it: --root {target}, and --model sha256:… where the base model is not")
