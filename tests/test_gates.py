"""What a rewrite must leave alone: the names of all planned artifacts, and stores made by an earlier commit.

`make gates` runs this file and the tests that the Makefile lists beside it.
"""

import json
import os
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import varband
from flows.study.profiles import PROFILES
from storage.ledger import Ledger
from tests import mini, warm

GOLDEN = Path(__file__).parent / "golden"
PLANS = GOLDEN / "plans.json"
BLESS = "VARBAND_BLESS=1 pytest tests/test_gates.py"
RUN = "demo-f25f2fe6"


@pytest.fixture(scope="module")
def plans() -> Iterator[dict[str, dict[str, str]]]:
    known = json.loads(PLANS.read_text()) if PLANS.exists() else {}
    yield known
    if os.environ.get("VARBAND_BLESS"):
        lines = [f" {json.dumps(name)}: {json.dumps(names)}" for name, names in sorted(known.items())]
        PLANS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_planned_artifacts_keep_their_names(
    profile: str, plans: dict[str, dict[str, str]], shared: Path, tmp_path: Path
) -> None:
    """The golden holds one digest of all refs of a kind, so that a change names the stages that it moved."""
    words = ["plan", profile, "--json", "--data", str(shared / "data"), "--root", str(tmp_path)]
    if PROFILES[profile].model != "demo":
        words += ["--model", f"sha256:{'c' * 64}"]
    planned = CliRunner().invoke(varband, words, catch_exceptions=False)
    assert planned.exit_code == 0, planned.output
    refs = defaultdict(set)
    for stage in json.loads(planned.stdout)["stages"]:
        refs[stage["ref"].rpartition("-")[0]].add(stage["ref"])
    found = {kind: sha256("\n".join(sorted(names)).encode()).hexdigest()[:8] for kind, names in sorted(refs.items())}
    if os.environ.get("VARBAND_BLESS"):
        plans[profile] = found
    moved = [kind for kind in {**found, **plans[profile]} if found.get(kind) != plans[profile].get(kind)]
    assert not moved, f"{profile}: other names for {', '.join(moved)}; if their rows change: {BLESS}"


def test_a_store_of_an_earlier_commit_opens_resumes_and_reports(tmp_path: Path) -> None:
    """Its run was parked while it trained its second arm. What it paid for survives a collection and is not paid twice."""
    with tarfile.open(GOLDEN / "parked-store.tar.xz") as kept:
        kept.extractall(tmp_path, filter="data")
    root, book = tmp_path / "parked", Ledger(tmp_path / "parked")
    paid = {account: set(book.keys(account)) for account, _ in book.accounts()}

    def varband(*words: str, engine: bool = False) -> str:
        words = (warm.VARBAND, *words, "--root", str(root), "--json")
        done = warm.run(words, cwd=tmp_path, env=mini.environment(), engine=engine)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    assert [(run["id"], run["state"]) for run in json.loads(varband("runs"))] == [(RUN, "parked")]
    varband("store", "gc", "--older-than", "0d", "--yes")
    result = json.loads(varband("resume", RUN, "--budget", "tokens=1000000", engine=True))
    assert Path(result["html"]).exists()
    assert paid and all(keys <= set(book.keys(account)) for account, keys in paid.items())
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0


def test_a_copy_of_a_finished_store_lacks_nothing(demo_store: Path, tmp_path: Path) -> None:
    root = shutil.copytree(demo_store, tmp_path / "copy")
    stages = mini.finish(root, verb="plan")["stages"]
    assert stages and all(stage["reused"] for stage in stages)
    assert sum(stage["rollouts"] for stage in stages) == 0
