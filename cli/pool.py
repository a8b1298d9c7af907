"""`varband pool`: build a pool of problems, see what its checks found, draw a held-out split."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cli import options

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.domain.problems.problems import PoolPolicy
    from tasks.domain.problems.sources import SourceSpec

folder = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group()
def pool() -> None:
    """Build and check pools of problems."""


def _pool_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.argument("sources", nargs=-1),
        click.option("--data", type=folder, envvar="VARBAND_DATA", help="Folder with the source files."),
        click.option(
            "--on-issue",
            type=click.Choice(["exclude", "keep"]),
            default="exclude",
            show_default=True,
            help="Problems whose gold fails its checks.",
        ),
        click.option("--also-exclude", multiple=True, metavar="CODE", help="Exclude findings of this code too."),
        click.option("--limit", type=click.IntRange(1), help="First problems only."),
        click.option("--from-hub", is_flag=True, help="Load the sources from the hub, each at a named commit."),
        click.option(
            "--revision",
            "revisions",
            multiple=True,
            metavar="SOURCE=COMMIT",
            help="Commit of a source's dataset on the hub, 40 hex digits.",
        ),
        options.root,
        options.as_json,
    ):
        command = option(command)
    return command


@pool.command()
@_pool_options
def build(root: Path, as_json: bool, **wishes: Any) -> None:
    """Make a pool from SOURCES: names of known sets, or files. Without any: the 877 olympiad problems."""
    from cli.stages import opened
    from storage.sql import query

    sources, places, policy = _wishes(root, **wishes)
    with opened(root, places, as_json) as store:
        from tasks.pool import build_pool, list_pool_issues

        ref = build_pool(sources=sources, policy=policy)
        issues = store.read(list_pool_issues(pool=ref))
        problems = store.read(ref)
    counts = {
        column: query(
            f"select {column} as name, count(*) as n from problems group by 1 order by 2 desc", problems=problems
        )
        for column in ("source", "answer_type")
    }
    dropped = query("select count(distinct source_id) as n from issues where excluded", issues=issues)["n"][0].as_py()
    if as_json:
        told = {column: {r["name"]: r["n"] for r in t.to_pylist()} for column, t in counts.items()}
        options.write_json({"pool": str(ref), "problems": problems.num_rows, "excluded": dropped, **told})
        return
    click.echo(f"{ref}: {problems.num_rows} problems, {dropped} excluded by findings")
    for column, table in counts.items():
        click.echo(f"  by {column}: " + ", ".join(f"{r['n']} {r['name']}" for r in table.to_pylist()))
    click.echo(
        f"  at {store.path(ref)}; findings: varband pool check {_as_typed(click.get_current_context())}".rstrip()
    )


@pool.command()
@_pool_options
@click.option("--against", multiple=True, metavar="SOURCE", help="Look for duplicates in these too.")
@click.option("--code", help="List every finding of one code.")
def check(
    root: Path, as_json: bool, against: tuple[str, ...], code: str | None, data: Path | None, **wishes: Any
) -> None:
    """What the checks find in a pool: golds, texts, duplicates inside it and AGAINST other sets."""
    from cli.stages import opened
    from cli.tables import print_table
    from storage.sql import query

    sources, places, policy = _wishes(root, data=data, **wishes)
    with opened(root, places, as_json) as store:
        from tasks.pool import build_pool, list_pool_issues

        ref = build_pool(sources=sources, policy=policy)
        problems, issues = store.read(ref), store.read(list_pool_issues(pool=ref))
    if code is not None:
        chosen = query(
            "select source_id, severity, excluded, detail from issues where code = $code", {"code": code}, issues=issues
        )
        print_table(chosen, as_json=as_json, title=f"{code}: {_meaning(code)}")
        return
    summary = query(
        "select code, severity, count(*) as problems, count(*) filter (excluded) as excluded,"
        " string_agg(replace(source_id, 'olympiadbench_OE_TO_maths_en_COMP', 'ob'), ' ' order by source_id)[:40] as ids"
        " from issues group by all order by severity, problems desc, code",
        issues=issues,
    )
    clustered = query(
        "select cluster, count(*) as problems,"
        " string_agg(replace(source_id, 'olympiadbench_OE_TO_maths_en_COMP', 'ob'), ' ' order by source_id)[:60] as ids"
        " from problems"
        " group by 1 having count(*) > 1 order by 2 desc, 1",
        problems=problems,
    )
    compared = against or _beside(data, {spec.name for spec in sources})
    leaks = _leaks(problems, compared, data)
    if as_json:
        parts = {"findings": summary, "clusters": clustered, "leaks": leaks}
        tables = {name: table.to_pylist() for name, table in parts.items()}
        options.write_json({"pool": str(ref), "problems": problems.num_rows, **tables})
        return
    click.echo(f"{ref}: {problems.num_rows} problems")
    print_table(summary, as_json=False, title="findings (ids: --code CODE)")
    click.echo(
        f"\n{clustered.num_rows} clusters of near-duplicates hold {sum(clustered['problems'].to_pylist())} problems"
    )
    print_table(clustered.slice(0, 10), as_json=False)
    if leaks.num_rows:
        print_table(leaks, as_json=False, title="\nduplicates in other sets")
    elif compared:
        click.echo("no duplicates in " + ", ".join(compared))
    elif data:
        click.echo(f"compared with no other set: {data} has no file of one")


@pool.command()
@_pool_options
@click.option("--heldout", default=25, show_default=True, type=click.IntRange(0), help="Held-out problems per source.")
@click.option("--seed", default=20260424, show_default=True)
def split(root: Path, as_json: bool, heldout: int, seed: int, **wishes: Any) -> None:
    """Draw a held-out split of a pool, before any model is seen, and look for near-duplicates across it."""
    from cli.stages import opened
    from cli.tables import print_table
    from storage.sql import query
    from tasks.domain.problems.leaks import find_leaks
    from tasks.domain.problems.splits import of_split

    sources, places, policy = _wishes(root, **wishes)
    with opened(root, places, as_json) as store:
        from tasks.pool import build_pool
        from tasks.splits import split_pool

        pool = build_pool(sources=sources, policy=policy)
        ref = split_pool(pool=pool, heldout_per_source=heldout, seed=seed)
        problems, splits = store.read(pool, ["problem_id", "source_id", "problem"]), store.read(ref)
    counts = query("select split, source, count(*) as problems from splits group by all order by all", splits=splits)
    held, trained = (of_split(problems, splits, name) for name in ("heldout", "train"))
    leaks = find_leaks(held, trained, "heldout", "train")
    if as_json:
        found = {"splits": str(ref), "pool": str(pool), "counts": counts.to_pylist(), "leaks": leaks.to_pylist()}
        options.write_json(found)
        return
    click.echo(f"{ref} of {pool}")
    print_table(counts, as_json=False)
    click.echo(f"{leaks.num_rows} near-duplicate pairs across the split")
    if leaks.num_rows:
        print_table(leaks, as_json=False)


def _as_typed(context: click.Context) -> str:
    """The arguments and options of a command as they were typed, for another command that takes the same."""
    words: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            for one in value if isinstance(value, tuple) else [value]:
                name = [] if isinstance(parameter, click.Argument) else [parameter.opts[0]]
                words += name if one is True else [*name, str(one)]
    return shlex.join(words)


def _meaning(code: str) -> str:
    from storage.errors import UserError
    from tasks.domain.problems.gold_check import CODES

    if code not in CODES:
        raise UserError(f"unknown code '{code}' (known: {', '.join(CODES)})")
    return CODES[code]


def _wishes(
    root: Path,
    sources: tuple[str, ...],
    data: Path | None,
    on_issue: str,
    also_exclude: tuple[str, ...],
    limit: int | None,
    from_hub: bool,
    revisions: tuple[str, ...],
) -> tuple[tuple[SourceSpec, ...], dict[str, Path], PoolPolicy]:
    from tasks.domain.problems.problems import PoolPolicy
    from tasks.domain.problems.sources import OLYMPIAD, source_spec
    from tasks.engines.problems.problem_files import read_problems

    for code in also_exclude:
        _meaning(code)
    commits = _commits(revisions, from_hub)
    if from_hub:
        from tasks.domain.problems.sources import source_named
        from tasks.engines.problems.hub import fetch_source

        found = [fetch_source(source_named(name), commits, root / "hub") for name in sources or OLYMPIAD]
    else:
        found = [source_spec(Path(name), data) for name in sources or OLYMPIAD]
    for spec, path in found:
        read_problems(path, spec.name, spec.only)  # what is wrong with a file is said before anything is written
    policy = PoolPolicy(on_issue=on_issue, also_exclude=also_exclude, limit=limit)
    return tuple(spec for spec, _ in found), {spec.sha256: path for spec, path in found}, policy


def _commits(revisions: tuple[str, ...], from_hub: bool) -> dict[str, str]:
    from storage.errors import UserError
    from tasks.domain.problems.sources import source_named

    if revisions and not from_hub:
        raise UserError("--revision names a commit on the hub: add --from-hub")
    commits = {}
    for text in revisions:
        name, equals, commit = text.partition("=")
        if not equals:
            raise UserError(f"--revision {text}: write SOURCE=COMMIT")
        commits[source_named(name).name] = commit
    return commits


def _beside(data: Path | None, own: set[str]) -> tuple[str, ...]:
    """The sets that a pool is compared with unless told otherwise: every named one that is there, but for its own."""
    from tasks.domain.problems.sources import SOURCES

    others = (source for name, source in SOURCES.items() if name not in own)
    return tuple(source.name for source in others if data is not None and (data / source.file).exists())


def _leaks(problems: pa.Table, against: tuple[str, ...], data: Path | None) -> pa.Table:
    import pyarrow as pa

    from storage.sql import query
    from tasks.domain.problems.leaks import LEAKS, find_leaks
    from tasks.domain.problems.problems import problem_id
    from tasks.domain.problems.sources import source_spec
    from tasks.engines.problems.problem_files import load_problems

    found = [LEAKS.empty_table()]
    for name in against:
        spec, path = source_spec(Path(name), data)
        rows = load_problems([(path, spec.name, spec.only)])
        other = pa.table(
            {
                "problem_id": [problem_id(r["problem"]) for r in rows],
                "source_id": [r["source_id"] for r in rows],
                "problem": [r["problem"] for r in rows],
            }
        )
        found.append(find_leaks(problems.select(["problem_id", "source_id", "problem"]), other, "pool", spec.name))
    leaks = pa.concat_tables(found)
    own = "select * from leaks where source_id <> other_source_id order by similarity desc, source_id"
    return query(f"select source_id, other_split as set, other_source_id, kind, similarity from ({own})", leaks=leaks)
