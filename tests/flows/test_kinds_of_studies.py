"""Whole small studies that differ in shape: trained jointly, not at all, on several bases, or in two places."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.study.models import SHIPPED
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.query_cache import ask
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.duplicates import near_duplicates
from tasks.domain.problems.problems import pool_rows
from tasks.engines.model_files import model_digest
from tasks.pool import draw_split
from tests import mini, warm
from tests.mini import environment
from tests.needs import lacks
from tests.tiny_model import adapter, another_model

pytestmark = pytest.mark.slow


def summary(store: Store, result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["arm"]: row for row in ask(store.root, result["report"], "report_summary").to_pylist()}


def test_a_joint_study_trains_both_arms_on_what_both_have_in_their_band(tmp_path: Path) -> None:
    mini.finish(tmp_path / "store", "--set", "train_on=joint")
    store = Store(tmp_path / "store")
    held = {r["problem_id"] for r in store.read(store.refs("splits")[0]).to_pylist() if r["split"] == "heldout"}

    def live(ref: Ref) -> set[str]:
        return {r["problem_id"] for r in store.read(ref).to_pylist() if r["band"] == "variance"}

    one, other = map(live, store.refs("bands"))
    assert one != other
    for training in store.refs("training"):
        (bands,) = store.manifest(training).recipe.inputs["bands"]
        trained = pq.read_table(store.files(training) / "exposure.parquet")["problem_id"].to_pylist()
        assert live(Ref.parse(bands)) == one & other and trained and set(trained) <= (one & other) - held


def test_without_training_every_arm_is_measured_and_nothing_is_trained(tmp_path: Path) -> None:
    store, result = Store(tmp_path / "store"), mini.finish(tmp_path / "store", "--seeds", "")
    assert store.refs("training") == [] and result["made"] == result["stages"] == len(store.refs())
    inputs = store.manifest(Ref.parse(result["report"])).recipe.inputs
    assert not inputs.get("trainings") and len(inputs["final"]) == len(inputs["screenings"]) == 2
    for row in summary(store, result).values():
        assert 0 < row["heldout_before"] < 1 and row["variance"] and row["heldout_after"] is row["gain"] is None
    page = (store.files(Ref.parse(result["report"])) / "report.md").read_text()
    assert "Nothing was trained in this run." in page and "## Training" not in page


def test_arms_on_different_models(tmp_path: Path) -> None:
    """One starts from an adapter made elsewhere; one is a ceiling, with an adapter that no training could resume."""
    another_model(tmp_path / "other")
    adapter(tmp_path / "fits", rank=16)
    adapter(tmp_path / "wide", rank=32, targets=("q_proj", "v_proj"))
    settings = (
        "arms.panel.adapter=./fits",
        "arms.thinking.model=./other",
        "arms.think_tags.trained_as=none",
        "arms.think_tags.adapter=./wide",
        "gate.anyway=true",  # one arm starts from an adapter, the other from its base
    )
    words = ["--arms", "panel,thinking,think_tags", *(word for one in settings for word in ("--set", one))]
    store, result = Store(tmp_path / "store"), mini.finish(tmp_path / "store", *words)
    accounts = [about for _, about in Ledger(store.root).accounts()]
    models = {(about["arm"], about["model"]) for about in accounts}
    assert models == {("panel", "demo"), ("thinking", "other"), ("think_tags", "demo")}
    imported = {str(r) for r in store.refs("training") if store.manifest(r).recipe.stage == "import_adapter"}
    assert len(imported) == 2 and {a["adapter"] in imported for a in accounts if a["arm"] == "think_tags"} == {True}
    assert len(store.manifest(Ref.parse(result["report"])).recipe.inputs["trainings"]) == 2
    rows = summary(store, result)
    assert rows["think_tags"]["heldout_before"] is not None and rows["think_tags"]["gain"] is None
    assert rows["panel"]["gain"] is not None
    codes = {row["code"] for row in ask(store.root, result["report"], "report_audit").to_pylist()}
    assert {"different_models", "adapter_made_elsewhere"} <= codes


def test_a_study_in_two_places(tmp_path: Path) -> None:
    """Sampled and trained here without the encoder; embedded and reported there, from a light copy without weights."""
    here, there = tmp_path / "here", tmp_path / "there"
    done = mini.ended(here, "--without", "embeddings", "--set", "encoder.name=elsewhere")
    assert done.returncode == 75 and "left to another machine" in done.stderr
    kinds = {ref.kind for ref in Store(here).refs()}
    assert {"rollouts", "bands", "training", "passk"} <= kinds
    assert not {"calibrations", "embeddings", "diversity", "diversity_comparison", "report"} & kinds
    words = [warm.VARBAND, "export", "study", str(there), "--without", "weights", "--root", str(here), "--json"]
    copied = json.loads(warm.run(words).stdout)
    assert copied["left_bytes"] > 0 and copied["others"] == 0
    result = mini.finish(there, "--model", f"sha256:{model_digest(SHIPPED['demo'])}")
    assert Path(result["html"]).exists() and all(Store(there).fresh(ref) for ref in Store(here).refs())


# Real input on a CPU: GSM8K problems, SmolLM2-135M, all-mpnet-base-v2, every stage; a short version of `varband run
# small`.


TOKENS = 40
SETTINGS = (
    "pool.heldout_per_source=3",
    "screening.group_size=2",
    "training.steps=1",
    "training.group_size=2",
    "evaluation.group_size=1",
    "final.group_size=2",
    "passk.ks=1,2",
    "passk.draws=200",
    f"screening.sampling.max_tokens={TOKENS}",
    f"rollouts.max_tokens={TOKENS}",
    f"evaluation.sampling.max_tokens={TOKENS}",
    f"final.sampling.max_tokens={TOKENS}",
)


def model_folder(shared: Path, kind: str) -> Path:
    """A real model's folder, made once and kept in the user's cache. Skips loudly where it cannot be made."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "varband" / "models" / kind
    made = subprocess.run(
        [sys.executable, str(shared / "offline" / "models.py"), kind, str(cache)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        lacks("shared", f"the model {kind} could not be made: {made.stderr[-500:]}")
    return cache


def test_every_stage_on_real_problems_with_real_models(shared: Path, tmp_path: Path) -> None:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ["run", "small", "--json", "--root", str(tmp_path / "store"), "--limit", "10", *sets]
    words += ["--pool", str(shared / "data" / "gsm8k_test.jsonl")]
    words += ["--model", str(model_folder(shared, "smollm2")), "--encoder", str(model_folder(shared, "mpnet"))]
    done = warm.run([warm.VARBAND, *words], env=environment(), engine=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["made"] == result["stages"]
    store = Store(tmp_path / "store")
    assert {ref.kind for ref in store.refs()} >= {"pool", "rollouts", "training", "embeddings", "report"}
    assert store.read(store.refs("pool")[0]).num_rows == 10
    assert {row["step"] for ref in store.refs("training") for row in store.read(ref).to_pylist()} == {1}


# Benchmarks in a live run: the mini demo with two slices of a made-up file.


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
