"""`varband grade`, `grader`, `regrade`: the one grader, for anybody's rollouts, and over stored ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from cli import options

overrides_option = click.option(
    "--overrides", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What people settled: JSON lines with answer, gold, verdict, reason.",
)  # fmt: skip


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@overrides_option
def grade(file: Path, overrides: Path | None) -> None:
    """Grade FILE: JSON lines with arm, completion, gold and, if it was cut off, finish. `-` is standard input.

    Prints one JSON line per row, in order: verdict, reason, answer, canonical, grader_version.
    """
    from tasks.engines.graders import Graders
    from tasks.engines.grading_files import read_grade_items

    items = read_grade_items(sys.stdin.buffer.read() if str(file) == "-" else file)
    with Graders(overrides=_overrides(overrides)) as graders:
        for start in range(0, len(items), 1024):
            for verdict in graders.grade(items[start : start + 1024]):
                told = {"verdict": verdict.verdict, "reason": verdict.reason, "answer": verdict.answer,
                        "canonical": verdict.canonical, "grader_version": graders.version}  # fmt: skip
                click.echo(json.dumps(told))


@click.group()
def grader() -> None:
    """The grader's adversarial self-test, and answers on which two opinions differ."""


@grader.command()
@options.as_json
def selftest(as_json: bool) -> None:
    """Run the adversarial suite: false positives and negatives by family. Exit code 1 if there are any."""
    import pyarrow as pa

    from cli.tables import print_table
    from storage.sql import query
    from tasks.engines.graders import Graders
    from tasks.engines.selftest import run_selftest

    with Graders() as graders:
        outcomes = run_selftest(graders)
        version = graders.version
    rows = pa.Table.from_pylist([
        {"family": o.case.family, "fp": o.false_positive, "fn": o.false_negative, "other": o.other_verdict,
         "right": o.case.expected == "correct", "place": i} for i, o in enumerate(outcomes)
    ])  # fmt: skip
    table = query(
        "select family, count(*) as cases, count(*) filter (\"right\") as should_pass,"
        " count(*) filter (fp) as false_positives,"
        " count(*) filter (fn) as false_negatives, count(*) filter (other) as other_reason from rows group by 1"
        " order by min(place)", rows=rows,
    )  # fmt: skip
    print_table(table, as_json=as_json, title=f"grader {version}")
    bad = [o for o in outcomes if o.false_positive or o.false_negative or o.other_verdict]
    for o in bad:
        click.echo(f"{o.case.family}: {o.case.completion[-60:]!r} for {o.case.gold[:40]!r}: expected {o.case.expected},"
                   f" got {o.got.verdict} ({o.got.reason})", err=True)  # fmt: skip
    if not as_json:
        wrong = sum(o.false_positive or o.false_negative for o in outcomes)
        click.echo(f"{len(outcomes)} cases, {wrong} graded wrongly")
    if bad:
        raise click.exceptions.Exit(1)


@grader.command()
@options.root
@options.as_json
def disputes(root: Path, as_json: bool) -> None:
    """Stored answers on which grader and second opinion differ. Settle them in a file for --overrides."""
    import pyarrow as pa

    from cli.stages import opened
    from cli.tables import print_table
    from tasks.disputes import DISPUTES, find_disputes

    with opened(root, {}, as_json) as store:
        found = [store.read(find_disputes(tuple(refs), pool)) for pool, refs in _by_pool(store).items()]
    print_table(pa.concat_tables(found) if found else DISPUTES.empty_table(), as_json=as_json, title="disputes")


@click.command()
@overrides_option
@options.root
@options.as_json
def regrade(overrides: Path | None, root: Path, as_json: bool) -> None:
    """Grade all stored rollouts again, without sampling: what changes, which figures move, what was built on them."""
    import orjson
    import pyarrow as pa

    from cli.stages import opened, say
    from cli.tables import print_table
    from tasks.regrade import CHANGES, changes, golds_of, moved, regrade_rollouts

    settled = _overrides(overrides)
    plain = tuple((a, g, v, why) for (a, g), (v, why) in sorted(settled.settled.items())) if settled else ()
    version = _version(settled)
    report: list[dict[str, Any]] = []
    changed, figures = [CHANGES.empty_table()], []
    with opened(root, {}, as_json) as store:
        for pool, refs in _by_pool(store).items():
            problems = store.read(pool, ["problem_id", "gold"])
            for ref in refs:
                old = store.read(ref)
                if not (set(old["grader_version"].to_pylist()) - {version}):
                    continue
                new_ref = regrade_rollouts(ref, pool, version, plain)
                new = store.read(new_ref)
                diff = changes(old, new, golds_of(old, problems))
                changed.append(diff)
                figures.append(moved(old, new))
                stale = _descendants(store, ref) if diff.num_rows else []
                report.append({"rollouts": str(ref), "regraded": str(new_ref), "rows": old.num_rows,
                               "changed": diff.num_rows, "built_on_it": stale})  # fmt: skip
    flips = pa.concat_tables(changed)
    if as_json:
        told = {"grader_version": version, "artifacts": report, "changes": flips.to_pylist(),
                "figures": [row for t in figures for row in t.to_pylist()]}  # fmt: skip
        click.echo(orjson.dumps(told))
        return
    if not report:
        say(f"every stored rollout is graded by {version} already")
        return
    say(f"grader {version}: {sum(r['rows'] for r in report)} rollouts regraded, {flips.num_rows} verdicts changed")
    if flips.num_rows:
        print_table(
            flips.select(["arm", "step", "answer", "gold", "was", "now", "reason"]).slice(0, 50),
            as_json=False,
            title="changes",
        )
    if figures:
        print_table(pa.concat_tables(figures), as_json=False, title="figures")
    for entry in report:
        if entry["built_on_it"]:
            built = ", ".join(entry["built_on_it"])
            say(f"{entry['rollouts']} has other verdicts in {entry['regraded']}; built on the old ones: {built}")


def _overrides(path: Path | None) -> Any:
    from tasks.domain.overrides import read_overrides

    return None if path is None else read_overrides(path.read_text(), str(path))


def _version(settled: Any) -> str:
    from tasks.domain.grading import GRADER_VERSION

    return settled.version(GRADER_VERSION) if settled else GRADER_VERSION


def _by_pool(store: Any) -> dict[Any, list[Any]]:
    """Sampled rollouts of the store, by the pool they were drawn from."""
    from storage.artifacts import Ref

    found: dict[Any, list[Any]] = {}
    for ref in store.refs("rollouts"):
        recipe = store.manifest(ref).recipe
        if recipe.stage != "regrade_rollouts" and recipe.inputs.get("pool"):
            found.setdefault(Ref.parse(recipe.inputs["pool"][0]), []).append(ref)
    return found


def _descendants(store: Any, ref: Any) -> list[str]:
    """Artifacts that were made, through however many stages, from `ref`."""
    recipes = {str(r): store.manifest(r).recipe for r in store.refs()}
    made_from = {
        name: {i for refs in recipe.inputs.values() for i in refs}
        for name, recipe in recipes.items() if recipe.stage not in ("regrade_rollouts", "find_disputes")
    }  # fmt: skip
    reached = {str(ref)}
    while grown := {r for r, inputs in made_from.items() if inputs & reached} - reached:
        reached |= grown
    return sorted(reached - {str(ref)})
