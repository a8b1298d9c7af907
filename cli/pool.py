"""`varband pool`: make a pool of problems, check it and split it."""

from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from cli import options
from cli.tables import print_table
from cli.view import opened
from flows.study.resolve import found_source
from storage.errors import check_known
from storage.sql import query
from tasks.domain.problems.duplicates import LEAKS, find_leaks
from tasks.domain.problems.gold_check import CODES
from tasks.domain.problems.problems import PoolPolicy, of_split, problem_id
from tasks.domain.problems.sources import OLYMPIAD, SOURCES, source_spec
from tasks.engines.problem_files import load_problems, read_problems
from tasks.pool import build_pool, list_pool_issues, split_pool

#: Ids of the problems of a finding. The name of one long source is abbreviated.
IDS = "string_agg(replace(source_id, 'olympiadbench_OE_TO_maths_en_COMP', 'ob'), ' ' order by source_id)"
QUERIES = {
    **{
        name: f"select {column}, count(*) as problems from problems group by 1 order by 2 desc, 1"
        for name, column in (("sources", "source"), ("answer_types", "answer_type"))
    },
    "findings": "select code, severity, count(*) as problems, count(*) filter (excluded) as excluded,"
    f" {IDS}[:40] as ids from issues group by all order by severity, problems desc, code",
    "clusters": f"select cluster, count(*) as problems, {IDS}[:60] as ids from problems group by 1"
    " having count(*) > 1 order by 2 desc, 1",
}
TITLES = {
    "findings": "findings (ids: --code CODE)",
    "clusters": "near-duplicates",
    "leaks": "duplicates in other sets",
    "across_split": "near-duplicates across the split",
}
#: Columns in which duplicates are looked for.
TEXTS = ["problem_id", "source_id", "problem"]


@click.command()
@click.argument("sources", nargs=-1)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    envvar="VARBAND_DATA",
    help="Folder with the source files.",
)
@click.option(
    "--on-issue",
    type=click.Choice(["exclude", "keep"]),
    default="exclude",
    help="Exclude or keep problems whose gold fails its checks.",
)
@click.option("--also-exclude", multiple=True, metavar="CODE", help="Also exclude problems with the finding CODE.")
@click.option("--limit", type=click.IntRange(1), help="Use only this many problems, from the start of the pool.")
@click.option("--against", multiple=True, metavar="SOURCE", help="Also find duplicates in this set. May be repeated.")
@click.option("--code", help="List all findings of the checks with this code.")
@click.option("--heldout", type=click.IntRange(1), help="Split the pool, with this many held-out problems per source.")
@click.option("--seed", default=20260424, help="Seed of the split.")
@options.root
@options.as_json
def pool(
    sources: tuple[str, ...],
    data: Path | None,
    against: tuple[str, ...],
    code: str | None,
    heldout: int | None,
    seed: int,
    root: Path,
    as_json: bool,
    **policy: Any,
) -> None:
    """Make a pool from SOURCES, check its golds and texts, and find duplicates. Duplicates are searched in the pool, in
    the known sets under --data, and in the sets of --against. With --heldout, also split the pool and find
    near-duplicates across the split.

    A source is a file, a known set, or a set on the hub. A file (JSONL, JSON, CSV, Parquet) has the fields problem or
    question, and gold or answer. Write a set on the hub as NAME@COMMIT or OWNER/NAME@COMMIT:SPLIT. Without SOURCES the
    pool has the 877 olympiad problems.
    """
    for known in (*policy["also_exclude"], *([code] if code else [])):
        check_known("code", known, CODES)
    found = [found_source(wish, data, root / "hub") for wish in sources or OLYMPIAD]
    for spec, path in found:
        read_problems(path, spec.name, spec.only)  # mistakes in a file are reported before anything is written
    with opened(root, {spec.sha256: path for spec, path in found}) as store:
        ref = build_pool(sources=tuple(spec for spec, _ in found), policy=PoolPolicy(**policy))
        problems, issues = store.read(ref), store.read(list_pool_issues(pool=ref))
        splits = store.read(split_pool(pool=ref, heldout_per_source=heldout, seed=seed)) if heldout else None
    if code is not None:
        listed = "select source_id, severity, excluded, detail from issues where code = $code"
        print_table(query(listed, {"code": code}, issues=issues), as_json=as_json, title=f"{code}: {CODES[code]}")
        return
    own = {*problems["source"].to_pylist()}
    named = [one.name for one in SOURCES.values() if data and one.name not in own and (data / one.file).exists()]
    compared = against or tuple(named)
    tables = {name: query(statement, problems=problems, issues=issues) for name, statement in QUERIES.items()}
    tables["leaks"] = _leaks(problems, compared, data)
    if splits is not None:
        counted = "select split, source, count(*) as problems from splits group by all order by all"
        held, trained = (of_split(problems.select(TEXTS), splits, name) for name in ("heldout", "train"))
        tables["split"] = query(counted, splits=splits)
        tables["across_split"] = find_leaks(held, trained, "heldout", "train")
    if as_json:
        rows = {name: table.to_pylist() for name, table in tables.items()}
        options.write_json({"pool": str(ref), "problems": problems.num_rows, **rows})
        return
    click.echo(f"{ref}: {problems.num_rows} problems, at {store.path(ref)}")
    for name, table in tables.items():
        if table.num_rows:
            click.echo()
            print_table(table.slice(0, 30), as_json=False, title=TITLES.get(name, name))
    if not tables["leaks"].num_rows:
        click.echo(f"no duplicates in {', '.join(compared)}" if compared else "not compared with another set")


def _leaks(problems: pa.Table, against: tuple[str, ...], data: Path | None) -> pa.Table:
    """Return problems of the pool that are duplicates of problems in other sets."""
    found = [LEAKS.empty_table()]
    for name in against:
        spec, path = source_spec(Path(name), data)
        rows = load_problems([(path, spec.name, spec.only)])
        texts = [row | {"problem_id": problem_id(row["problem"])} for row in rows]
        other = pa.Table.from_pylist(texts, schema=pa.schema([(name, pa.string()) for name in TEXTS]))
        found.append(find_leaks(problems.select(TEXTS), other, "pool", spec.name))
    return query(
        "select source_id, other_split as set, other_source_id, kind, similarity from leaks"
        " where source_id <> other_source_id order by similarity desc, source_id",
        leaks=pa.concat_tables(found),
    )
