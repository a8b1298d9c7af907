"""Models and problems by id and commit, from a hub on this machine, from the command line; and without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.artifacts.store import Store
from tests import warm
from tests.hub_server import COMMIT, hub

pytestmark = pytest.mark.slow

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
    assert "but for riddles, of which nobody knows how many they are" in told
    assert not (tmp_path / "home").exists()
    done = varband(tmp_path, there, "run", "mine.toml", "--plain", "--without", "rollouts")
    assert done.returncode == 75, done.stderr[-3000:]
    store = Store(tmp_path / ".varband")
    golds = {tuple(store.read(ref)["gold"].to_pylist()[:3]) for ref in store.refs("pool")}
    assert golds == {("1", "3", "5")}
    recipes = json.dumps([store.manifest(ref).recipe.arguments for ref in store.refs("pool")])
    assert "openai/gsm8k" in recipes and "lab/riddles" in recipes and COMMIT in recipes
    again = varband(tmp_path, {**there, "HF_HUB_OFFLINE": "1"}, "plan", "mine.toml")
    assert "not on this machine" not in again.stdout, "what was fetched is found again without a network"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((f"lab/small@{COMMIT}", f"lab/gated@{COMMIT}"), "gated repo"),
        ((f"lab/riddles@{COMMIT}", f"lab/nothing@{COMMIT}"), "put its problems into"),
    ],
)
def test_what_cannot_be_had_is_one_sentence_before_anything_is_made(
    wrong: tuple[str, str], said: str, tmp_path: Path, there: dict[str, str]
) -> None:
    (tmp_path / "hub/models/lab/gated").mkdir()
    (tmp_path / "hub/models/lab/gated/GATED").touch()
    (tmp_path / "mine.toml").write_text(STUDY.replace(*wrong))
    done = varband(tmp_path, there, "run", "mine.toml", "--plain")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not [*(tmp_path / ".varband").glob("pool/*")]


def test_another_commit_is_not_taken_for_the_one_that_lies_there(tmp_path: Path, there: dict[str, str]) -> None:
    """Of a set that nobody has described, as of a known one."""
    first = STUDY.replace(f"lab/small@{COMMIT}", "demo")
    (tmp_path / "mine.toml").write_text(first)
    varband(tmp_path, there, "run", "mine.toml", "--plain", "--without", "rollouts")
    assert [path.name for path in (tmp_path / ".varband/hub").glob("lab*")] == [f"lab--riddles-{COMMIT[:12]}"]
    moved = "1" * 40
    (tmp_path / "mine.toml").write_text(first.replace(f"lab/riddles@{COMMIT}", f"lab/riddles@{moved}"))
    assert f"not on this machine: lab/riddles@{moved}" in " ".join(
        varband(tmp_path, there, "plan", "mine.toml").stdout.split()
    )
    assert varband(tmp_path, there, "run", "mine.toml", "--plain").returncode == 2
