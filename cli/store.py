"""`varband ls`, `show`, `sql`, `gc`: the store as people see it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import click

from cli import options


def _print(table: object, as_json: bool, title: str | None = None) -> None:
    from cli.tables import print_table

    print_table(table, as_json=as_json, title=title)


@click.command()
@click.argument("kind", required=False)
@options.root
@options.as_json
def ls(kind: str | None, root: Path, as_json: bool) -> None:
    """Artifacts of the store, newest first; of one KIND if given."""
    from storage.reading.catalog import artifacts
    from storage.sql import query

    found = artifacts(root)
    shown = query(
        "select ref, rows, seconds, created, stage, kind from found where $kind is null or kind = $kind"
        " order by created desc, ref",
        {"kind": kind},
        found=found,
    )
    _print(shown, as_json)


@click.command()
@click.argument("ref")
@click.option("-n", "--rows", default=10, show_default=True, help="Rows to show.")
@options.root
@options.as_json
def show(ref: str, rows: int, root: Path, as_json: bool) -> None:
    """One artifact: recipe, schema, first rows, and what it was made from. REF may be cut short."""
    import orjson

    from cli.tables import print_table
    from storage.artifacts.store import Store
    from storage.reading.catalog import find, lineage

    store = Store(root)
    found = find(root, ref)
    manifest, table = store.manifest(found), store.read(found)
    if as_json:
        sample = table.slice(0, rows).to_pylist()
        whole = {"manifest": manifest.model_dump(), "rows": sample}
        sys.stdout.buffer.write(orjson.dumps(whole, default=str) + b"\n")
        return
    p = manifest.provenance
    click.echo(
        f"{found}\n  {manifest.rows} rows, made by {manifest.recipe.stage} v{manifest.recipe.version}"
        f" in {p.seconds:.1f} s\n  {p.created}, {p.hardware}\n  code {p.code}"
    )
    for note, value in p.notes.items():
        click.echo(textwrap.fill(f"{note}: {value}", 80, initial_indent="  ", subsequent_indent="    "))
    click.echo("\nschema")
    for field in table.schema:
        click.echo(f"  {field.name:<20} {field.type}{'' if field.nullable else ', required'}")
    click.echo("\nmade from")
    for depth, one, stage in lineage(store, found):
        click.echo(f"  {'  ' * depth}{one}  {stage}")
    click.echo("")
    print_table(table.slice(0, rows), as_json=False, title=f"first {min(rows, table.num_rows)} rows")


@click.command()
@click.argument("statement")
@options.root
@options.as_json
def sql(statement: str, root: Path, as_json: bool) -> None:
    """One SQL statement over the catalog: a view per kind, `artifacts`, and `ledger`."""
    from storage.reading.catalog import ask

    _print(ask(root, statement), as_json)


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
@options.root
@options.as_json
def gc(dry_run: bool, root: Path, as_json: bool) -> None:
    """Remove artifacts that no report descends from, finished work folders and scratch. The ledger stays."""
    from storage.reading.catalog import collect

    _print(collect(root, dry_run=dry_run), as_json, title="would be removed" if dry_run else "removed")
