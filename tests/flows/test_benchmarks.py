"""Benchmarks in a live run: the mini demo with two slices of a made-up file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.query_cache import ask
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.duplicates import near_duplicates
from tasks.domain.problems.problems import pool_rows
from tasks.splits import draw_split
from tests import warm
from tests.mini import SETTINGS, environment

pytestmark = pytest.mark.slow

Row = dict[str, Any]


def in_training() -> list[str]:
    """Texts of the mini demo's training problems."""
    rows, _ = pool_rows(demo_problems(16, 7))
    train = {r["problem_id"] for r in draw_split(pa.Table.from_pylist(rows), 4, 0).to_pylist() if r["split"] == "train"}
    return [r["problem"] for r in rows if r["problem_id"] in train]


def write_benchmark(path: Path) -> None:
    """Problems of levels 1 to 5 that resemble no training problem; one that is one; one that is one in more words."""
    known = in_training()
    made = demo_problems(16, 8)
    strangers = [
        *(set(range(len(made))) - {pair.first for pair in near_duplicates([p["problem"] for p in made], known)})
    ]
    rows = [{"uid": f"b{i}", **{k: made[i][k] for k in ("problem", "gold", "level")}} for i in strangers]
    rows += [
        {"uid": "the_same", "problem": known[0], "gold": "1", "level": "1"},
        {"uid": "nearly", "problem": f"Slowly now. {max(known, key=len)}", "gold": "1", "level": "5"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


STUDY = """
base = "demo"
[benchmarks.stratified]
sources = ["made_up.jsonl"]
levels = ["1", "2", "3", "4", "5"]
per_level = 2
group_size = 2
[benchmarks.level_5]
sources = ["made_up.jsonl"]
levels = ["5"]
group_size = 4
"""


def varband(root: Path, file: Path) -> Row:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    words = [warm.VARBAND, "run", str(file), "--plain", "--json", "--root", str(root), *sets]
    done = warm.run(words, env=environment(), engine=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    write_benchmark(folder / "made_up.jsonl")
    (folder / "study.toml").write_text(STUDY)
    return folder / "study.toml"


@pytest.fixture(scope="module")
def run(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Row]:
    root = tmp_path_factory.mktemp("benched") / "store"
    return Store(root), varband(root, file)


@pytest.fixture(scope="module")
def chosen(run: tuple[Store, Row]) -> dict[str, list[Row]]:
    tables = [run[0].read(ref).to_pylist() for ref in run[0].refs("benchmark")]
    return {rows[0]["benchmark"]: rows for rows in tables}


def asked(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["split"] == "benchmark"]


def test_each_level_gives_its_first_two_by_hash(chosen: dict[str, list[Row]]) -> None:
    rows = chosen["stratified"]
    assert Counter(row["level"] for row in asked(rows)) == dict.fromkeys("12345", 2)
    for level in "12345":
        free = [r["problem_id"] for r in rows if r["level"] == level and r["split"] != "near_training"]
        ranked = sorted(free, key=lambda p: hashlib.sha256(f"0:{p}".encode()).hexdigest())
        assert {r["problem_id"] for r in asked(rows) if r["level"] == level} == set(ranked[:2])


def test_every_policy_answers_every_benchmark(run: tuple[Store, Row], chosen: dict[str, list[Row]]) -> None:
    store, result = run
    inputs = store.manifest(Ref.parse(result["report"])).recipe.inputs
    seen: dict[tuple[str, int, int], dict[str, list[bool]]] = {}
    for place, text in enumerate(inputs["sliced"]):
        rows = store.read(Ref.parse(text)).to_pylist()
        groups: dict[str, list[bool]] = defaultdict(list)
        for row in rows:
            groups[row["problem_id"]].append(row["correct"])
        seen[rows[0]["arm"], rows[0]["step"], place % 2] = groups
        name, n = (("stratified", 2), ("level_5", 4))[place % 2]
        assert set(groups) == {r["problem_id"] for r in asked(chosen[name])}
        assert {len(group) for group in groups.values()} == {n}
    assert set(seen) == {(a, s, b) for a in ("panel", "thinking") for s in (0, 4) for b in (0, 1)}
    figures = ask(store.root, result["report"], "report_slices").to_pylist()
    for row in figures:
        place, n = (0, 2) if row["benchmark"] == "stratified" else (1, 4)
        groups = seen[row["arm"], row["step"], place]
        if row["k"] == n:
            assert row["pass_at_k"] == pytest.approx(sum(map(any, groups.values())) / len(groups))
        if row["k"] == 1:
            assert row["pass_at_k"] == pytest.approx(sum(map(sum, groups.values())) / len(groups) / n)
    assert {(r["benchmark"], r["k"]) for r in figures} == {
        *(("stratified", k) for k in (1, 2)),
        *(("level_5", k) for k in (1, 2, 4)),
    }
    assert any(r["pass_at_k"] > 0 for r in figures)
    assert "pass@k on benchmarks" in Path(result["html"]).read_text()


def test_a_problem_of_two_benchmarks_is_paid_for_once(run: tuple[Store, Row], chosen: dict[str, list[Row]]) -> None:
    store = run[0]
    shared = {r["problem_id"] for r in asked(chosen["stratified"])} & {
        r["problem_id"] for r in asked(chosen["level_5"])
    }
    notes = [
        (m.rows, m.provenance.notes["reused_rollouts"])
        for ref in store.refs("rollouts")
        if (m := store.manifest(ref)).recipe.arguments.get("split") == "benchmark"
        and m.recipe.arguments["group_size"] == 4
    ]
    assert len(shared) == 2 and len(notes) == 4
    assert {int(reused) for _, reused in notes} == {2 * len(shared)}
    book = Ledger(store.root)
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0


def test_the_second_run_makes_nothing(run: tuple[Store, Row], file: Path) -> None:
    assert run[1]["made"] == run[1]["stages"]
    assert varband(run[0].root, file)["made"] == 0
