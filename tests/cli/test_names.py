"""Studies by their names: where hashes stand, where refs are asked for, side by side, and taken away."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.catalog import find
from storage.reading.query_cache import reports
from storage.records.runs import all_runs, run_named, write_run
from tests import mini, warm
from tests.servers import COMMIT, hub

pytestmark = pytest.mark.slow

Row = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row, Row]:
    """A root with two studies: `demo`, and `cooler` with an arm and a number that differ."""
    root = tmp_path_factory.mktemp("names") / "store"
    first = mini.finish(root, "--seeds", "")
    return (
        root,
        first,
        mini.finish(root, "--seeds", "", "--arms", "panel", "--set", "passk.draws=400", "--name", "cooler"),
    )


@pytest.fixture
def root(made: tuple[Path, Row, Row], tmp_path: Path) -> Path:
    return shutil.copytree(made[0], tmp_path / "store")


def told(*words: str, root: Path) -> tuple[str, str]:
    """What a command that goes well writes to its output and beside it."""
    done = warm.run([warm.VARBAND, *words, "--root", str(root)])
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def said(*words: str, root: Path, fails: bool = False) -> str:
    done = warm.run([warm.VARBAND, *words, "--root", str(root)])
    assert (done.returncode != 0) == fails and "Traceback" not in done.stderr, done.stderr
    return done.stderr if fails else done.stdout


def test_a_name_stands_wherever_hashes_do(made: tuple[Path, Row, Row]) -> None:
    root, _, second = made
    runs = {row["profile"]: row for row in json.loads(said("runs", "--json", root=root))}
    assert runs["cooler"]["id"].startswith("cooler-")
    assert "passk.draws: 10000 → 400" in runs["cooler"]["changed"] and "arms: " in runs["cooler"]["changed"]
    first, second_, *_ = runs["cooler"]["changed"].split("; ")
    assert {first[:4], second_[:4]} == {"arms", "pass"}, "what the other study has not changed so stands first"
    listed = {row["ref"]: row["study"] for row in json.loads(said("store", "ls", "--json", root=root))}
    assert listed[second["report"]] == "cooler"
    assert "cooler, demo" in listed.values(), "what both need has both names"
    for text in ("cooler", run_named(root, "cooler").id, second["report"]):  # type: ignore[union-attr]
        assert str(find(root, text)) == second["report"]
    assert "no artifact, run or study 'coooler'" in said("store", "show", "coooler", root=root, fails=True)
    labels = {one.ref: one.label for one in reports(root)}
    assert labels[second["report"]].startswith("cooler · ")


def test_compare_says_what_was_asked_otherwise_and_what_was_found(made: tuple[Path, Row, Row]) -> None:
    root, first, second = made
    told = json.loads(said("report", "demo", "--against", "cooler", "--json", root=root))
    assert told["reports"] == [first["report"], second["report"]]
    assert told["settings"]["passk.draws"] == [500, 400]
    assert told["settings"]["arms"] == [["panel", "thinking"], ["panel"]]
    rows = {(row["arm"], row["phase"]): row for row in told["figures"]}
    panel, thinking = rows["panel", "before"], rows["thinking", "before"]
    expected = {row["arm"]: row["heldout_before"] for row in first["summary"]}
    assert panel["one"] == panel["other"] == pytest.approx(expected["panel"])
    assert (panel["difference_pp"], panel["problems"], panel["reason"]) == (0, 16, "the same rollouts")
    assert thinking["one"] == pytest.approx(expected["thinking"]) and thinking["other"] is None
    text = said("report", "demo", "--against", "cooler", root=root)
    assert "passk.draws: 500 → 400" in text and "held-out accuracy" in text
    assert "would be compared with itself" in said(
        "report", "demo", "--against", first["report"], root=root, fails=True
    )


def test_sql_says_of_how_many_studies_its_rows_are(root: Path) -> None:
    """A study without a report has rows too."""
    counted, run = ("store", "sql", "select count(*) from rollouts"), run_named(root, "cooler")
    assert run is not None and run.report is not None
    shutil.rmtree(root / "report" / run.report)
    write_run(root, run.model_copy(update={"report": None, "state": "failed"}))
    note = f"all 2 studies in {root}: demo, cooler; limit them with --study NAME"
    assert note in told(*counted, root=root)[1] and told(*counted, "--study", "demo", root=root)[1] == ""


def test_rm_takes_what_is_of_one_study_alone_and_restores_it(root: Path) -> None:
    before, paid = set(Store(root).refs()), len(Ledger(root).shard_paths())
    would = said("store", "rm", "cooler", root=root)
    assert "would be removed with --yes" in would and set(Store(root).refs()) == before
    said("store", "rm", "cooler", "--yes", root=root)
    kept = set(Store(root).refs())
    assert kept < before and len(Ledger(root).shard_paths()) == paid
    assert [run.profile for run in all_runs(root)] == ["demo"]
    assert mini.finish(root, "--seeds", "")["made"] == 0, "the other study lacks nothing"
    said("store", "gc", "--restore", root=root)
    assert set(Store(root).refs()) == before and len(all_runs(root)) == 2


# Models and problems by id and commit, from a hub on this machine, from the command line; and without one.


RIDDLES = [{"question": f"How much is {i} and {i + 1}?", "answer": str(2 * i + 1)} for i in range(12)]
STUDY = f"""
base = "demo"
arms = ["panel"]
seeds = []
model = "lab/small@{COMMIT}"
[pool]
sources = ["gsm8k_train@{COMMIT}"]
heldout_per_source = 2
[benchmarks.riddles]
sources = ["lab/riddles@{COMMIT}:test"]
group_size = 1
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a shell has whose hub is on this machine: a model, a known set and one that nobody has described."""
    root = tmp_path / "hub"
    shutil.copytree(warm.REPO / "models" / "demo", root / "models" / "lab" / "small")
    for name, split, rows in (
        ("openai/gsm8k", "main/train", [row | {"answer": f"so #### {row['answer']}"} for row in RIDDLES]),
        ("lab/riddles", "test", [row | {"question": f"{row['question']} Think."} for row in RIDDLES]),
    ):
        (file := root / "datasets" / name / f"{split}.jsonl").parent.mkdir(parents=True)
        file.write_text("\n".join(map(json.dumps, rows)))
    card = "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train.jsonl\n---\n"
    (root / "datasets/openai/gsm8k/README.md").write_text(card)
    (tmp_path / "mine.toml").write_text(STUDY)
    with hub(root) as address:
        yield {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}


def varband(folder: Path, shell: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run([warm.VARBAND, *words], cwd=folder, env=shell)


def test_a_plan_fetches_nothing_and_a_run_all_of_it(tmp_path: Path, there: dict[str, str]) -> None:
    planned = varband(tmp_path, there, "plan", "mine.toml")
    assert planned.returncode == 0, planned.stderr
    told = " ".join(planned.stdout.split())
    for name in (f"lab/small@{COMMIT}", f"openai/gsm8k@{COMMIT}", f"lab/riddles@{COMMIT}"):
        assert name in told, told
    assert "except riddles, whose size is unknown" in told
    assert not (tmp_path / "home").exists()
    done = varband(tmp_path, there, "run", "mine.toml", "--without", "rollouts")
    assert done.returncode == 75, done.stderr[-3000:]
    store = Store(tmp_path / ".varband")
    golds = {tuple(store.read(ref)["gold"].to_pylist()[:3]) for ref in store.refs("pool")}
    assert golds == {("1", "3", "5")}
    recipes = json.dumps([store.manifest(ref).recipe.arguments for ref in store.refs("pool")])
    assert "openai/gsm8k" in recipes and "lab/riddles" in recipes and COMMIT in recipes
    again = varband(tmp_path, {**there, "HF_HUB_OFFLINE": "1"}, "plan", "mine.toml")
    assert "not on this machine" not in again.stdout, "what was fetched is found again without a network"


def test_what_cannot_be_had_is_one_sentence_before_anything_is_made(tmp_path: Path, there: dict[str, str]) -> None:
    (tmp_path / "hub/models/lab/gated").mkdir()
    (tmp_path / "hub/models/lab/gated/GATED").touch()
    (tmp_path / "mine.toml").write_text(STUDY.replace(f"lab/small@{COMMIT}", f"lab/gated@{COMMIT}"))
    done = varband(tmp_path, there, "run", "mine.toml")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "gated repo" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not [*(tmp_path / ".varband").glob("pool/*")]
