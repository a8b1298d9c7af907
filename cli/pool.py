"""`varband pool`: make pools of problems, check them, and split them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from cli import options
from cli.tables import print_table
from cli.view import opened
from flows.study.resolve import found_source
from storage.artifacts.schemas import Pool
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.sql import query
from tasks.domain.problems.duplicates import LEAKS, find_leaks
from tasks.domain.problems.gold_check import CODES
from tasks.domain.problems.problems import PoolPolicy, of_split, problem_id
from tasks.domain.problems.sources import OLYMPIAD, SOURCES, source_spec
from tasks.engines.problem_files import load_problems, read_problems
from tasks.pool import build_pool, list_pool_issues
from tasks.splits import split_pool

#: Names of a finding's problems, the longest source's shortened.
IDS = "string_agg(replace(source_id, 'olympiadbench_OE_TO_maths_en_COMP', 'ob'), ' ' order by source_id)"


@click.group()
def pool() -> None:
    """Make and check pools of problems, and split them."""


def _pool_options(command: Callable[..., None]) -> Callable[..., None]:
    folder = click.Path(path_type=Path, exists=True, file_okay=False)
    for option in (
        click.argument("sources", nargs=-1),
        click.option("--data", type=folder, envvar="VARBAND_DATA", help="Folder with the source files."),
        click.option(
            "--on-issue",
            type=click.Choice(["exclude", "keep"]),
            default="exclude",
            help="Exclude or keep problems whose gold fails its checks.",
        ),
        click.option("--also-exclude", multiple=True, metavar="CODE", help="Also exclude problems with this finding."),
        click.option("--limit", type=click.IntRange(1), help="Use only this many problems, the first ones."),
        options.root,
        options.as_json,
    ):
        command = option(command)
    return command


@contextmanager
def _built(root: Path, wishes: dict[str, Any]) -> Iterator[tuple[Store, Pool]]:
    """Yield the store and a pool of these sources, in a session that can call stages."""
    for code in wishes["also_exclude"]:
        _meaning(code)
    found = [found_source(wish, wishes["data"], root / "hub") for wish in wishes["sources"] or OLYMPIAD]
    for spec, path in found:
        read_problems(path, spec.name, spec.only)  # a file's mistakes are reported before anything is written
    policy = PoolPolicy(**{name: wishes[name] for name in ("on_issue", "also_exclude", "limit")})
    with opened(root, {spec.sha256: path for spec, path in found}) as store:
        yield store, build_pool(sources=tuple(spec for spec, _ in found), policy=policy)


@pool.command()
@_pool_options
@click.option("--against", multiple=True, metavar="SOURCE", help="Search this set for duplicates. May be repeated.")
@click.option("--code", help="List all findings with this code.")
def check(root: Path, as_json: bool, against: tuple[str, ...], code: str | None, **wishes: Any) -> None:
    """Make a pool from SOURCES, check its golds and texts, and find duplicates: in the pool, in the known sets under
    --data, and in sets given by --against.

    SOURCES are files (JSONL, JSON, CSV, Parquet) with fields problem or question, and gold or answer; names of known
    sets; or sets on the hub, NAME@COMMIT or OWNER/NAME@COMMIT:SPLIT. Without SOURCES the pool has the 877 olympiad
    problems.
    """
    with _built(root, wishes) as (store, ref):
        problems, issues = store.read(ref), store.read(list_pool_issues(pool=ref))
    if code is not None:
        listed = "select source_id, severity, excluded, detail from issues where code = $code"
        print_table(query(listed, {"code": code}, issues=issues), as_json=as_json, title=f"{code}: {_meaning(code)}")
        return
    by = "select {0}, count(*) as problems from problems group by 1 order by 2 desc, 1"
    data, own = wishes["data"], {*problems["source"].to_pylist()}
    named = [one.name for one in SOURCES.values() if data and one.name not in own and (data / one.file).exists()]
    compared = against or tuple(named)
    tables = {
        "sources": query(by.format("source"), problems=problems),
        "answer_types": query(by.format("answer_type"), problems=problems),
        "findings": query(
            f"select code, severity, count(*) as problems, count(*) filter (excluded) as excluded, {IDS}[:40] as ids"
            " from issues group by all order by severity, problems desc, code",
            issues=issues,
        ),
        "clusters": query(
            f"select cluster, count(*) as problems, {IDS}[:60] as ids from problems group by 1 having count(*) > 1"
            " order by 2 desc, 1",
            problems=problems,
        ),
        "leaks": _leaks(problems, compared, data),
    }
    if as_json:
        rows = {name: table.to_pylist() for name, table in tables.items()}
        options.write_json({"pool": str(ref), "problems": problems.num_rows, **rows})
        return
    click.echo(f"{ref}: {problems.num_rows} problems, at {store.path(ref)}")
    titles = {
        "findings": "findings (ids: --code CODE)",
        "clusters": "near-duplicates",
        "leaks": "duplicates in other sets",
    }
    for name, table in tables.items():
        if table.num_rows:
            print_table(table.slice(0, 30), as_json=False, title=f"\n{titles.get(name, name)}")
    if not tables["leaks"].num_rows:
        click.echo(f"no duplicates in {', '.join(compared)}" if compared else "compared with no other set")


@pool.command()
@_pool_options
@click.option("--heldout", default=25, type=click.IntRange(0), help="Held-out problems per source.")
@click.option("--seed", default=20260424, help="Seed of the random choice.")
def split(root: Path, as_json: bool, heldout: int, seed: int, **wishes: Any) -> None:
    """Split a pool into training and held-out problems. Prints near-duplicates across the split."""
    with _built(root, wishes) as (store, pool):
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


def _meaning(code: str) -> str:
    if code not in CODES:
        raise UserError(f"unknown code '{code}' (known: {', '.join(CODES)})")
    return CODES[code]


def _leaks(problems: pa.Table, against: tuple[str, ...], data: Path | None) -> pa.Table:
    found, columns = [LEAKS.empty_table()], ["problem_id", "source_id", "problem"]
    for name in against:
        spec, path = source_spec(Path(name), data)
        rows = [
            row | {"problem_id": problem_id(row["problem"])} for row in load_problems([(path, spec.name, spec.only)])
        ]
        other = pa.table({column: [row[column] for row in rows] for column in columns})
        found.append(find_leaks(problems.select(columns), other, "pool", spec.name))
    return query(
        "select source_id, other_split as set, other_source_id, kind, similarity from leaks"
        " where source_id <> other_source_id order by similarity desc, source_id",
        leaks=pa.concat_tables(found),
    )
