"""`varband compare` and `rm`: two studies side by side, and one taken away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cli import completion, options


@click.command()
@click.argument("one", shell_complete=completion.runs)
@click.argument("other", shell_complete=completion.runs)
@options.root_there
@options.as_json
def compare(one: str, other: str, root: Path, as_json: bool) -> None:
    """Two studies: in which settings they differ, and their figures side by side, paired by problem.

    ONE and OTHER are reports, ids of runs, or names of studies (varband runs).
    """
    import orjson

    from cli.tables import print_table
    from storage.errors import UserError
    from storage.reading.catalog import find
    from storage.reading.comparison import figures, settings_apart

    refs = [find(root, text) for text in (one, other)]
    for ref in refs:
        if ref.kind != "report":
            raise UserError(f"{ref} is no report: two studies are compared, by a report, a run's id or a name")
    if refs[0] == refs[1]:
        raise UserError(f"{one} and {other} are one study: {refs[0]}")
    found = [str(ref) for ref in refs]
    apart, rows = settings_apart(root, *found), figures(root, *found)
    if as_json:
        told = {"reports": found, "settings": apart, "figures": rows.to_pylist()}
        sys.stdout.buffer.write(orjson.dumps(told) + b"\n")
        return
    click.echo(f"{one}: {refs[0]}\n{other}: {refs[1]}\n")
    for path, (left, right) in apart.items():
        click.echo(f"  {path}: {_told(left)} → {_told(right)}")
    click.echo("" if apart else "  no setting differs\n")
    print_table(
        rows, as_json=False, title="held-out accuracy; difference_pp: the second minus the first, over problems"
    )


def _told(value: Any) -> str:
    return "–" if value is None else str(value)


@click.command()
@click.argument("what", shell_complete=completion.refs)
@click.option("--yes", is_flag=True, help="Move it to the bin; without, it is only said what would go.")
@options.root_there
@options.as_json
def rm(what: str, yes: bool, root: Path, as_json: bool) -> None:
    """Remove WHAT: a run by its id, a study by its name, or one artifact by its ref.

    A study goes with all that nothing else is made from or wants. Rollouts in the ledger stay, and what was spent.
    Until the next `gc --yes`, `varband gc --restore` puts it back.
    """
    from cli.tables import print_table
    from storage.artifacts.store import Store
    from storage.records.garbage import remove

    ref = next((ref for ref in Store(root).refs() if str(ref) == what), None)
    found, said = remove(root, what, ref, really=yes), "moved to the bin" if yes else "would go with --yes"
    print_table(found, as_json=as_json, title=said)
    if not as_json:
        click.echo(f"{found.num_rows} folders and records, {sum(found['bytes'].to_pylist()) / 1e6:.1f} MB {said}")
