"""`varband store`: list, show, query, remove and verify artifacts."""

import sys
import textwrap
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import click
import pyarrow as pa

from cli import options
from cli.tables import print_table
from flows.upkeep import verify as upkeep
from storage.artifacts.ref import KINDS
from storage.artifacts.store import Store
from storage.errors import UserError, check_known, printable
from storage.reading.catalog import artifacts, ask, find, lineage, of_study
from storage.records import garbage
from storage.records.garbage import remove
from storage.records.runs import all_runs, studies_of
from storage.sql import query


@click.group()
def store() -> None:
    """List, show, query, remove and verify artifacts."""


@store.command()
@click.argument("kind", required=False)
@options.root_there
@options.as_json
def ls(kind: str | None, root: Path, as_json: bool) -> None:
    """List artifacts, newest first. With KIND, list only artifacts of this kind."""
    found, studies = artifacts(root), studies_of(root)
    found = found.append_column("study", pa.array([", ".join(studies.get(r, ())) for r in found["ref"].to_pylist()]))
    known = sorted({*KINDS, *found["kind"].to_pylist()})
    if kind is not None:
        check_known("kind", kind, known)
    summary = query(
        "select ref, study, rows, seconds, created, stage, kind from found where $kind is null or kind = $kind"
        " order by created desc, ref",
        {"kind": kind},
        found=found,
    )
    print_table(summary, as_json=as_json)


@store.command()
@click.argument("ref", shell_complete=options.runs)
@click.option("-n", "--rows", default=10, help="Rows to show.")
@click.option(
    "--completions",
    metavar="N",
    type=click.IntRange(min=1),
    help="Show completions of N problems for each arm, instead of the rows.",
)
@click.option(
    "--failed", is_flag=True, help="Show only completions without an answer or valid tags, or that were cut off."
)
@options.root_there
@options.as_json
def show(ref: str, rows: int, completions: int | None, failed: bool, root: Path, as_json: bool) -> None:
    """Show an artifact: recipe, schema, first rows, inputs. REF may be abbreviated.

    With --completions, show how completions end; REF may then be a study or a run.
    """
    if completions or failed:
        _show_completions(root, ref, completions or 3, failed, as_json)
        return
    store = Store(root)
    found = find(root, ref)
    manifest, table = store.manifest(found), store.read(found)
    if as_json:
        options.write_json({"manifest": manifest.model_dump(), "rows": table.slice(0, rows).to_pylist()})
        return
    p, recipe = manifest.provenance, manifest.recipe
    lines = [
        f"{found}\n  {manifest.rows} rows, made by {recipe.stage} v{recipe.version} in {p.seconds:.1f} s",
        f"  {p.created}, {p.hardware}\n  code {p.code}",
        *(textwrap.indent(textwrap.fill(f"{note}: {value}", 76), "  ") for note, value in p.notes.items()),
        "\nschema",
        *(f"  {field.name:<20} {field.type}{'' if field.nullable else ', required'}" for field in table.schema),
        "\nmade from",
        *(f"  {'  ' * depth}{one}  {stage}" for depth, one, stage in lineage(store, found)),
    ]
    click.echo(printable("\n".join([*lines, ""]), kept="\n"))
    print_table(table.slice(0, rows), as_json=False, title=f"first {min(rows, table.num_rows)} rows")


#: Number of characters of a completion's end that are shown.
END = 600
#: Completions of N problems for each arm, with how many of all fail.
COMPLETIONS = """
    with marked as (
        select distinct on (arm, adapter, step, problem_id, rollout, completion) *, -- two evaluations may share it
            verdict = 'no_answer' or not tag_valid or finish = 'length' as fails
        from rollouts
    ), counted as (
        select *, count(*) over arms as rollouts, count(*) filter (fails) over arms as failures
        from marked window arms as (partition by arm)
    )
    select arm, rollouts, failures, problem_id, rollout, verdict, tag_valid, finish, num_tokens, completion
    from (
        select distinct on (arm, problem_id) * from counted where fails or not {failed}
        order by arm, problem_id, rollout
    )
    qualify row_number() over (partition by arm order by rollout, problem_id) <= {number}
    order by arm, rollout, problem_id
"""


def _show_completions(root: Path, ref: str, number: int, failed: bool, as_json: bool) -> None:
    named, statement = of_study(root, ref), COMPLETIONS.format(failed=failed, number=number)
    if not any(one.kind in ("rollouts", "report") and Store(root).has(one) for one in named):
        ledger = "select verdict, finish, right(completion, 300) as ends from ledger limit 3"
        raise UserError(f'{ref} has no whole screening or evaluation yet; its rollouts: `varband store sql "{ledger}"`')
    if named and named[0].kind == "rollouts" and len(named) == 1:
        rows = query(statement, rollouts=Store(root).read(named[0])).to_pylist()
    else:
        rows = ask(root, statement, named).to_pylist()
    if as_json:
        options.write_json(rows)
        return
    if not rows:
        click.echo(f"{ref}: every completion has an answer, valid tags and an end")
    for arm, group in groupby(rows, key=lambda row: row["arm"]):
        for place, row in enumerate(group):
            if place == 0:
                share = f"{row['failures']:,} of {row['rollouts']:,} completions lack an answer, valid tags or an end"
                click.secho(f"{arm}: {share}", bold=True)
            ended = "cut off at max_tokens" if row["finish"] == "length" else "ended"
            tags = "" if row["tag_valid"] else "no valid tags, "  # an arm without tags lacks none
            click.secho(
                f"\n{row['problem_id']}, rollout {row['rollout']}: {row['verdict']}, {tags}{ended} after"
                f" {row['num_tokens']:,} tokens",
                fg="cyan",
            )
            text = row["completion"]
            click.echo(textwrap.indent(printable("…" * (len(text) > END) + text[-END:], "\n\t"), "    "))


@store.command()
@click.argument("statement")
@click.option(
    "--study", metavar="REF", help="Query only this study: its report, a run's id or its name.  [default: all]"
)
@options.root_there
@options.as_json
def sql(statement: str, study: str | None, root: Path, as_json: bool) -> None:
    """Query the store with one SQL statement. There is a view for each kind of artifact (`rollouts`, `bands`, …), and
    the views `artifacts` and `ledger`; `show tables` lists all. Without --study the views have the rows of all studies
    in this root. With --study there is no `ledger`."""
    print_table(ask(root, statement, of_study(root, study) if study is not None else None), as_json=as_json)
    if study is None and len(several := [run.profile for run in reversed(all_runs(root))]) > 1:
        names = [*dict.fromkeys(several)]
        named = ", ".join([*names[:8], *["…"] * (len(names) > 8)])
        note = f"the rows are of all {len(several)} studies in {root}: {named}; limit them with --study NAME"
        click.echo(f"varband: {note}", err=True)


@store.command()
@click.option("--older-than", metavar="AGE", default="7d", help="Keep artifacts younger than this, e.g. 12h or 30d.")
@click.option(
    "--yes", is_flag=True, help="Move unreferenced artifacts to the bin, and delete the bin's earlier content."
)
@click.option("--restore", is_flag=True, help="Move everything in the bin back to the store.")
@options.root_there
@options.as_json
def gc(older_than: str, yes: bool, restore: bool, root: Path, as_json: bool) -> None:
    """List unreferenced artifacts; with --yes, move them to the bin. The command keeps reports, audits, pools, trained
    adapters, imported studies, artifacts that unfinished runs need, and everything that these were made from. It never
    changes the ledger."""
    if yes and restore:
        raise UserError("--yes and --restore cannot be combined: give only one of them")
    if restore:
        found, done = garbage.restore(root), "restored"
    else:
        found = garbage.collect(root, older_than=age(older_than), remove=yes)
        done = "moved to the bin, or deleted from it" if yes else "would be removed with --yes"
    print_table(found, as_json=as_json, title=done)
    if not as_json:
        click.echo(f"{found.num_rows} folders, {sum(found['bytes'].to_pylist()) / 1e6:.1f} MB {done}")


def age(text: str) -> timedelta:
    """Parse an age.

    >>> age("12h"), age("7d")
    (datetime.timedelta(seconds=43200), datetime.timedelta(days=7))
    """
    units = {"d": "days", "h": "hours", "m": "minutes"}
    number, unit = text[:-1], text[-1:]
    if unit not in units or not number.isdecimal() or len(number) > 4:
        raise UserError(f"--older-than '{text[:40]}': write a number of days, hours or minutes, such as 7d or 12h")
    return timedelta(**{units[unit]: int(number)})


@store.command()
@click.option("--repair", is_flag=True, help="Move damaged files to .damaged; running the study again remakes them.")
@options.root_there
@options.as_json
def verify(repair: bool, root: Path, as_json: bool) -> None:
    """Verify the checksums of all stored files. Exit code 1 if a damaged file is still in the store."""
    damage, examined = upkeep.verify(root, repair=repair)
    print_table(damage, as_json=as_json, title="damaged")
    if not as_json:
        click.echo(f"{examined} files were read, {damage.num_rows} are damaged")
    sys.exit(1 if damage["moved_to"].null_count else 0)


@store.command()
@click.argument("what", shell_complete=options.runs)
@click.option("--yes", is_flag=True, help="Move the artifacts to the bin.  [default: only list them]")
@options.root_there
@options.as_json
def rm(what: str, yes: bool, root: Path, as_json: bool) -> None:
    """Remove a run, a study or an artifact. WHAT is a run's id, a study's name or an artifact's ref. A study is removed
    with all artifacts that nothing else needs. Its rollouts stay in the ledger, and its spending is still counted.
    `varband store gc --restore` restores the removed artifacts until the next `gc --yes`."""
    ref = next((ref for ref in Store(root).refs() if str(ref) == what), None)
    found, done = remove(root, what, ref, really=yes), "moved to the bin" if yes else "would be removed with --yes"
    print_table(found, as_json=as_json, title=done)
    if not as_json:
        click.echo(f"{found.num_rows} folders and records, {sum(found['bytes'].to_pylist()) / 1e6:.1f} MB {done}")
