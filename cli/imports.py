"""`varband import`: rollouts that were sampled elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from cli import options


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--arm", "arms", multiple=True, help="Name of a file's arm, in the order of the files.")
@click.option(
    "--pool",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Problems with golds, where the files have none.",
)
@click.option("--name", default="imported", help="Name of the study that is written.")
@options.root
def import_(files: tuple[Path, ...], arms: tuple[str, ...], pool: Path | None, name: str, root: Path) -> None:
    """Take in rollouts that were sampled elsewhere.

    FILES: JSONL or Parquet with a column completion, samples of lm-eval, .eval files of inspect, traces of verifiers,
    completions of TRL. Each file is an arm. They are graded and entered into the ledger; NAME.toml is a study that
    compares them: `varband run NAME.toml` makes its report and samples nothing.
    """
    from flows.imported import bring
    from storage.artifacts.store import Store

    store = Store(root)
    store.prepare()
    done = bring(files, arms, pool, name, store)
    for one in done.entered:
        words = f"{one.arm}: {one.rollouts} rollouts, {one.new} of them new, {one.correct} correct"
        if one.judged:
            words += f"; the other tool judges {one.disagreements} of {one.judged} otherwise"
        click.echo(words)
    for note in done.notes:
        click.echo(note)
    click.echo(f"wrote {done.study}; next: varband run {done.study}")
