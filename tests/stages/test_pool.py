"""The real pool: its 877 problems, what the checks find, and splits: published, drawn, and kept clear of what is held out."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.schemas import Pool, Splits
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.problems.duplicates import find_leaks
from tasks.domain.problems.problems import PoolPolicy, pool_rows
from tasks.domain.problems.sources import OLYMPIAD, source_spec
from tasks.engines.toolbox import Toolbox
from tasks.pool import build_pool, draw_split, keep_clear, list_pool_issues, split_pool
from tasks.stage import Session, session
from tasks.training import trainable
from tests.dashboards.synthetic import put

PUBLISHED = {"heldout_eval": 100, "panel_train": 354, "thinking_train": 180, "heldout_aux": 310}


@pytest.fixture(scope="module")
def real(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Pool]]:
    """A store with the olympiad pool in it; the session stays open for the tests' own stages."""
    found = [source_spec(name, shared / "data") for name in OLYMPIAD]
    tools = Toolbox(places={spec.sha256: path for spec, path in found})
    store = Store(tmp_path_factory.mktemp("store"))
    store.prepare()
    with session(Session(store, tools)):
        yield store, build_pool(sources=tuple(spec for spec, _ in found), policy=PoolPolicy())
    tools.close()


def _published(shared: Path, name: str) -> list[str]:
    lines = (shared / "data/published/data/olympiad_pool" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["uid"] for line in lines]


def test_the_olympiad_pool(real: tuple[Store, Pool]) -> None:
    store, ref = real
    pool = store.read(ref)
    assert Counter(pool["source"].to_pylist()) == {"olympiadbench": 674, "amc": 83, "hmmt": 60, "aime": 60}
    assert len(set(pool["problem_id"].to_pylist())) == 877
    rows = {row["source_id"]: row for row in pool.to_pylist()}
    assert rows["amc__0"]["gold"] == "142"
    assert rows["amc__0"]["gold_raw"] == "142.0"
    assert rows["amc__0"]["answer_type"] == "integer"
    assert rows["aime_2024__18"]["gold"] == "23"
    assert rows["olympiadbench_OE_TO_maths_en_COMP__5"]["answer_type"] == "list"


def test_a_pool_of_which_nothing_is_left_says_why(real: tuple[Store, Pool], tmp_path: Path) -> None:
    (file := tmp_path / "mine.jsonl").write_text(
        "".join(f'{{"problem": "{i}?", "gold": "the cat sat"}}\n' for i in (1, 1, 2))
    )
    spec, path = source_spec(file, None)
    tools = Toolbox(places={spec.sha256: path})
    (store := Store(tmp_path / "store")).prepare()
    with (
        session(Session(store, tools)),
        pytest.raises(UserError, match=r"all 3 problems.* mine__0: \w+ \(.*; mine__1: "),
    ):
        build_pool(sources=(spec,), policy=PoolPolicy(also_exclude=("gold_only_text",)))
    tools.close()


def test_a_drawn_split_is_stratified_and_leaks_nothing(real: tuple[Store, Pool]) -> None:
    store, ref = real
    pool = store.read(ref)
    splits = store.read(split_pool(pool=ref, heldout_per_source=25, seed=20260424))
    held = {row["problem_id"]: row["source"] for row in splits.to_pylist() if row["split"] == "heldout"}
    assert Counter(held.values()) == {"olympiadbench": 25, "amc": 25, "hmmt": 25, "aime": 25}
    rows = pool.select(["problem_id", "source_id", "problem"]).to_pylist()
    parts = [pa.Table.from_pylist([r for r in rows if (r["problem_id"] in held) is side]) for side in (True, False)]
    assert find_leaks(parts[0], parts[1], "heldout", "train").num_rows == 0
    assert draw_split(pool, 25, 1) != draw_split(pool, 25, 2)


def test_the_published_split_has_its_defects(real: tuple[Store, Pool], shared: Path) -> None:
    store, ref = real
    sets = {name: _published(shared, name) for name in PUBLISHED}
    assert {name: len(ids) for name, ids in sets.items()} == PUBLISHED
    rows = store.read(ref).select(["problem_id", "source_id", "problem"]).to_pylist()
    chosen = {name: pa.Table.from_pylist([r for r in rows if r["source_id"] in set(ids)]) for name, ids in sets.items()}
    leaks = [
        (row["source_id"].rsplit("_", 1)[-1], row["other_source_id"].rsplit("_", 1)[-1], name)
        for name in ("panel_train", "thinking_train")
        for row in find_leaks(chosen["heldout_eval"], chosen[name], "heldout", name).to_pylist()
    ]
    assert leaks == [("142", "143", "panel_train"), ("210", "209", "panel_train"), ("210", "209", "thinking_train")]
    aime = [len([i for i in sets[name] if i.startswith("aime")]) for name in ("panel_train", "thinking_train")]
    assert aime == [6, 14]


def test_math_training_keeps_math500_out(shared: Path, tmp_path: Path) -> None:
    spec, path = source_spec("math_train", shared / "data")
    assert [name for name, _ in spec.guards] == ["math500"]
    store, tools = Store(tmp_path / "store"), Toolbox(places={spec.sha256: path})
    store.prepare()
    with session(Session(store, tools)):
        ref = build_pool(sources=(spec,), policy=PoolPolicy(on_issue="keep", limit=300))
        issues = store.read(list_pool_issues(pool=ref)).to_pylist()
    tools.close()
    out = [row for row in issues if "evaluation_problem" in row["code"]]
    assert out
    assert all(row["excluded"] for row in out)
    assert store.read(ref).num_rows == 300


def test_a_limited_pool_is_drawn_at_random_and_keeps_the_files_order(tmp_path: Path) -> None:
    """The head of a file sorted by subject is all algebra. Another order of the file is the same draw."""
    lines = [{"problem": f"Add {n} and {n}.", "gold": str(2 * n), "id": f"{n:03}"} for n in range(200)]
    drawn = []
    for name, order in (("a", lines), ("b", [*reversed(lines)])):
        path = tmp_path / name / "s.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps(line) + "\n" for line in order))
        spec, _ = source_spec(path, None)
        store, tools = Store(tmp_path / name), Toolbox(places={spec.sha256: path})
        store.prepare()
        with session(Session(store, tools)):
            pools = [build_pool(sources=(spec,), policy=PoolPolicy(limit=40, draw_seed=seed)) for seed in (None, 1, 2)]
            drawn.append([store.read(pool)["source_id"].to_pylist() for pool in pools])
        tools.close()
    (head, one, two), (_, again, _) = drawn
    assert head == [f"{n:03}" for n in range(40)]
    assert one == sorted(one) == again[::-1] and len(one) == 40 and {*one} != {*two} != {*head}
    assert sum(name >= "100" for name in one) > 10


# A lesson's split is kept clear of what the study holds out.


BOX = "A rectangular box has edges of length three, four and five and is cut by one plane through two of its corners."
RING = "Two circles lie in a ring so that each touches the other and both of its rims; find the sum of their radii."


def pool_of(*texts: str, prefix: str) -> pa.Table:
    rows, _ = pool_rows(
        [{"problem": t, "gold": "1", "source": "s", "source_id": f"{prefix}_{i}"} for i, t in enumerate(texts)]
    )
    return pa.Table.from_pylist(rows, schema=Pool.schema)


def splits_of(pool: pa.Table, *split: str) -> pa.Table:
    return pa.table({"problem_id": pool["problem_id"], "source": pool["source"], "split": list(split)})


def test_what_is_held_out_is_not_taught(tmp_path: Path) -> None:
    """Word for word, nearly, not at all; and what the study trains on may be taught."""
    study = pool_of(BOX, RING, prefix="OB")
    lesson = pool_of(BOX, f"{BOX} Find the area of the cut.", RING, "What is one more than two?", prefix="M")
    store = Store(tmp_path)
    store.prepare()
    with session(Session(store, Toolbox())):
        taught = put(store, Splits, splits_of(lesson, *["train"] * 4))
        clear = keep_clear(
            pool=put(store, Pool, lesson),
            splits=taught,
            studied=put(store, Pool, study, about="study"),
            heldout=put(store, Splits, splits_of(study, "heldout", "train"), about="study"),
        )
    made = store.read(clear)
    assert made["split"].to_pylist() == ["near_heldout", "near_heldout", "train", "train"]
    assert store.manifest(clear).provenance.notes["near_heldout"] == "2"
    assert trainable(lesson, made, None)["source_id"].to_pylist() == ["M_2", "M_3"]
    assert trainable(lesson, store.read(taught), None).num_rows == 4
