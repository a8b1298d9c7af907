"""Benchmarks in a live run: the mini demo with two slices of a made-up file."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.query_cache import ask
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.duplicates import near_duplicates
from tasks.domain.problems.problems import pool_rows
from tasks.splits import draw_split
from tests import mini, warm

pytestmark = pytest.mark.slow


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


def test_every_policy_answers_every_benchmark_and_what_two_share_is_paid_for_once(tmp_path: Path) -> None:
    write_benchmark(tmp_path / "made_up.jsonl")
    (tmp_path / "study.toml").write_text(STUDY)
    words = mini.command(tmp_path / "store")
    words[words.index("demo")] = str(tmp_path / "study.toml")
    done = warm.run(words, env=mini.environment(), engine=True)
    assert done.returncode == 0, done.stderr[-3000:]
    store, report = Store(tmp_path / "store"), json.loads(done.stdout)["report"]
    asked: dict[str, set[str]] = {}
    for rows in (store.read(ref).to_pylist() for ref in store.refs("benchmark")):
        asked[rows[0]["benchmark"]] = {row["problem_id"] for row in rows if row["split"] == "benchmark"}
    shared = asked["stratified"] & asked["level_5"]
    assert len(asked["stratified"]) == 10 and len(shared) == 2
    policies = {(arm, step) for arm in ("panel", "thinking") for step in (0, 4)}
    for name, n in (("stratified", 2), ("level_5", 4)):
        figures = [row for row in ask(store.root, report, "report_slices").to_pylist() if row["benchmark"] == name]
        assert {row["k"] for row in figures} == {k for k in (1, 2, 4) if k <= n}
        mine = [m for ref in store.refs("rollouts") if (m := store.manifest(ref)).recipe.arguments["group_size"] == n]
        mine = [m for m in mine if m.recipe.arguments.get("split") == "benchmark"]
        groups: dict[tuple[str, int], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for row in (row for m in mine for row in store.read(m.ref).to_pylist()):
            groups[row["arm"], row["step"]][row["problem_id"]].append(row["correct"])
        assert set(groups) == policies
        for policy, found in groups.items():
            assert set(found) == asked[name] and {len(group) for group in found.values()} == {n}
            passed = {r["k"]: r["pass_at_k"] for r in figures if (r["arm"], r["step"]) == policy}
            assert passed[n] == pytest.approx(sum(map(any, found.values())) / len(found))
            assert passed[1] == pytest.approx(sum(map(sum, found.values())) / len(found) / n)
    assert {m.provenance.notes["reused_rollouts"] for m in mine} == {str(2 * len(shared))}
    book = Ledger(store.root)
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
