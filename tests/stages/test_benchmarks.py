"""What of a benchmark is asked: by hand, and from the real MATH-500 and AIME against a pool that trains on AIME."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from flows.study.profiles import BENCHMARKS
from storage.artifacts.schemas import Pool
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.problems.duplicates import LEAKS
from tasks.domain.problems.problems import PoolPolicy, pool_rows
from tasks.domain.problems.sources import source_spec
from tasks.engines.toolbox import Toolbox
from tasks.pool import benchmark_of, build_pool, choose_benchmark, split_pool
from tasks.stage import Session, session


def tables(levels: str, leaked: str = "") -> tuple[pa.Table, pa.Table]:
    """A pool with a problem of each of these levels; those at `leaked` stand near three training problems each."""
    rows = [
        {"problem": f"Problem {i}?", "gold": "1", "source": "s", "source_id": str(i), "level": level}
        for i, level in enumerate(levels)
    ]
    pool = pa.Table.from_pylist(pool_rows(rows)[0], schema=Pool.schema)
    leaks = [
        {"problem_id": pool["problem_id"][int(i)].as_py(), "source_id": i, "split": "b", "similarity": n / 10}
        | {"other_id": f"t{n}", "other_source_id": f"t{n}", "other_split": "train", "kind": "near"}
        for i in leaked
        for n in (6, 8, 7)
    ]
    return pool, pa.Table.from_pylist(leaks, schema=LEAKS)


def test_the_next_one_stands_in_for_a_leak() -> None:
    pool, leaks = tables("1111")
    whole = benchmark_of("b", pool, leaks, ("1",), 2, 0).to_pylist()
    first = next(i for i, row in enumerate(whole) if row["split"] == "benchmark")
    less = benchmark_of("b", *tables("1111", leaked=str(first)), ("1",), 2, 0).to_pylist()
    assert (less[first]["split"], less[first]["near"], less[first]["similarity"]) == ("near_training", "t8", 0.8)
    asked, before = ([r["problem_id"] for r in rows if r["split"] == "benchmark"] for rows in (less, whole))
    assert len(asked) == len(before) == 2 and len(set(asked) & set(before)) == 1


@pytest.mark.parametrize(
    ("levels", "leaked", "wanted", "per_level", "said"),
    [
        ("112", "", ("1", "2"), 2, "level 2 needs 2 problems .*, but only 1 of its 1 are left"),
        ("12", "1", ("2",), None, "level 2 needs 1 problems .*, but only 0 of its 1 are left"),
    ],
)
def test_what_cannot_be_asked_is_said(
    levels: str, leaked: str, wanted: tuple[str, ...], per_level: int | None, said: str
) -> None:
    pool, leaks = tables(levels, leaked)
    with pytest.raises(UserError, match=said):
        benchmark_of("b", pool, leaks, wanted, per_level, 0)


def test_the_published_slices(shared: Path, tmp_path: Path) -> None:
    """10 of each level, all 134 of level 5, and of 60 AIME problems the 25 that are held out."""
    names = ("aime24", "aime25", "amc", "math500")
    found = {name: source_spec(name, shared / "data") for name in names}
    store = Store(tmp_path)
    store.prepare()
    tools = Toolbox(places={spec.sha256: path for spec, path in found.values()})
    with session(Session(store, tools)):
        pool = build_pool(sources=tuple(found[name][0] for name in names[:3]), policy=PoolPolicy())
        splits = split_pool(pool=pool, heldout_per_source=25, seed=0)
        made = {
            b.name: store.read(
                choose_benchmark(
                    name=b.name,
                    pool=build_pool(sources=tuple(found[s][0] for s in b.sources), policy=PoolPolicy()),
                    trained=(pool,),
                    splits=(splits,),
                    levels=b.levels,
                    per_level=b.per_level,
                    seed=b.seed,
                )
            ).to_pylist()
            for b in BENCHMARKS
        }
    tools.close()
    asked = {name: [row for row in rows if row["split"] == "benchmark"] for name, rows in made.items()}
    assert Counter(row["level"] for row in asked["math500_stratified"]) == dict.fromkeys("12345", 10)
    assert Counter(row["level"] for row in asked["math500_l5"]) == {"5": 134}
    held = {
        r["problem_id"] for r in store.read(splits).to_pylist() if r["split"] == "heldout" and r["source"] == "aime"
    }
    assert {row["problem_id"] for row in asked["aime"]} == held and len(held) == 25
    left = [row for row in made["aime"] if row["split"] == "near_training"]
    assert len(left) == 35 and all(row["near"] == row["source_id"] and row["similarity"] == 1 for row in left)
