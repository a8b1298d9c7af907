"""`varband split`: draw a held-out split, or import the published one with what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options

if TYPE_CHECKING:
    import pyarrow as pa

folder = click.Path(path_type=Path, exists=True, file_okay=False)
PUBLISHED = ("heldout_eval", "panel_train", "thinking_train", "heldout_aux")


@click.command()
@click.argument("sources", nargs=-1)
@click.option("--data", type=folder, envvar="VARBAND_DATA", help="Folder with the source files.")
@click.option("--heldout", default=25, show_default=True, type=click.IntRange(0), help="Held-out problems per source.")
@click.option("--seed", default=20260424, show_default=True)
@click.option(
    "--published", type=folder, help="Import the published split: a folder with heldout_eval.jsonl and others."
)
@options.root
@options.as_json
def split(
    sources: tuple[str, ...],
    data: Path | None,
    heldout: int,
    seed: int,
    published: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Hold problems out of a pool of SOURCES (without any: the olympiad pool), before any model is seen."""
    import orjson

    from cli.stages import opened, say
    from cli.tables import print_table
    from storage.sql import query
    from tasks.domain.problems.problems import PoolPolicy
    from tasks.domain.problems.sources import OLYMPIAD, source_spec
    from tasks.engines.problems.problem_files import read_problems

    found = [source_spec(Path(name), data) for name in sources or OLYMPIAD]
    for spec, path in found:
        read_problems(path, spec.name, spec.only)  # what is wrong with a file is said before anything is written
    sets = _published(published) if published else {}
    with opened(root, {spec.sha256: path for spec, path in found}, as_json) as store:
        from tasks.pool import build_pool
        from tasks.splits import import_split, split_pool

        pool = build_pool(sources=tuple(spec for spec, _ in found), policy=PoolPolicy())
        ref = (
            import_split(pool=pool, heldout_source_ids=tuple(sets["heldout_eval"]))
            if sets
            else split_pool(pool=pool, heldout_per_source=heldout, seed=seed)
        )
        problems, splits = store.read(pool), store.read(ref)
    counts = query("select split, source, count(*) as problems from splits group by all order by all", splits=splits)
    leaks = _leaks(problems, splits, sets)
    if as_json:
        click.echo(
            orjson.dumps(
                {
                    "splits": str(ref),
                    "pool": str(pool),
                    "counts": counts.to_pylist(),
                    "sets": {k: len(v) for k, v in sets.items()},
                    "leaks": leaks.to_pylist(),
                }
            )
        )
        return
    say(f"{ref} of {pool}")
    print_table(counts, as_json=False)
    if sets:
        say("published sets: " + ", ".join(f"{len(ids)} {name}" for name, ids in sets.items()))
        _say_aime(problems, sets)
    near = leaks.num_rows
    say(f"{near} near-duplicate pairs across the split" + (":" if near else ""))
    if near:
        print_table(leaks, as_json=False)


def _published(published: Path) -> dict[str, list[str]]:
    from tasks.engines.problems.problem_files import read_problems

    return {name: [row["source_id"] for row in read_problems(published / f"{name}.jsonl", name)] for name in PUBLISHED}


def _leaks(problems: pa.Table, splits: pa.Table, sets: dict[str, list[str]]) -> pa.Table:
    """Held-out against every training set: the published ones by name, or the split's own `train`."""
    import pyarrow as pa

    from storage.sql import query
    from tasks.domain.problems.leaks import LEAKS, find_leaks

    parts = [LEAKS.empty_table()]
    heldout = _chosen(problems, splits, "split = 'heldout'")
    trained = {name: _ids(problems, ids) for name, ids in sets.items() if name.endswith("_train")}
    for name, rows in (trained or {"train": _chosen(problems, splits, "split = 'train'")}).items():
        parts.append(find_leaks(heldout, rows, "heldout", name))
    found = pa.concat_tables(parts)
    return (
        query(
            "select source_id as heldout, other_source_id as train, other_split as set, kind, similarity from found"
            " order by similarity desc, 1, 2",
            found=found,
        )
        if found.num_rows
        else query("select source_id as heldout from found", found=found)
    )


def _chosen(problems: pa.Table, splits: pa.Table, condition: str) -> pa.Table:
    from storage.sql import query

    return query(
        f"select problem_id, source_id, problem from problems join splits using (problem_id)"
        f" where {condition} order by 2",
        problems=problems,
        splits=splits,
    )


def _ids(problems: pa.Table, ids: list[str]) -> pa.Table:
    import pyarrow as pa

    from storage.sql import query

    chosen = pa.table({"source_id": ids})
    return query(
        "select problem_id, source_id, problem from problems semi join chosen using (source_id) order by 2",
        problems=problems,
        chosen=chosen,
    )


def _say_aime(problems: pa.Table, sets: dict[str, list[str]]) -> None:
    """The study evaluates on AIME 2024 and 2025: which of their problems does it train on?"""
    from cli.stages import say
    from storage.sql import query

    aime = set(
        query("select source_id from problems where source = 'aime'", problems=problems)["source_id"].to_pylist()
    )
    for name in ("panel_train", "thinking_train"):
        inside = sorted(aime & set(sets[name]))
        say(
            f"{len(inside)} of {len(aime)} AIME evaluation problems are in {name}: {', '.join(inside[:8])}"
            + (" …" if len(inside) > 8 else "")
        )
