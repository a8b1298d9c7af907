"""Studies that several processes share without a server: each piece is made by one of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from storage.ledger import Ledger
from storage.records.runs import all_runs
from storage.roots import root_folder
from tests import mini
from tests.s3_server import ObjectStorage, object_storage

MADE = re.compile(r" made .* ([a-z]+-[0-9a-f]{16})$", re.MULTILINE)
STUDY = """\
base = "demo"
arms = ["panel"]
seeds = []
measures = []
pool = {{ synthetic = 8, heldout_per_source = 2 }}
screening = {{ group_size = 2, sampling = {{ seed = {n} }} }}
evaluation = {{ group_size = 1 }}
final = {{ group_size = 2, sampling = {{ seed = {n} }} }}
passk = {{ ks = [1, 2], draws = 100 }}
"""
#: Two arms and two seeds, so that four trainings can be shared.
TRAINED = """\
base = "demo"
seeds = [0, 1]
measures = []
pool = { synthetic = 16, heldout_per_source = 4 }
screening = { group_size = 4 }
evaluation = { group_size = 2 }
final = { group_size = 4 }
training = { steps = 30, eval_every = 15, groups_per_step = 2 }
passk = { ks = [1, 2], draws = 100 }
"""
#: What a host does: its studies one after another.
HOST = """
import sys
from cli.main import varband
root, *studies = sys.argv[1:]
for study in studies:
    varband(["run", study, "--shared", "--engine", "transformers", "--root", root], standalone_mode=False)
"""


def shared_by_three(studies: list[Path], root: str, folder: Path, server: ObjectStorage) -> list[set[str]]:
    """Have three hosts run the studies, each with a working copy of its own. Return the artifacts that each made."""
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, root, *map(str, studies)],
            cwd=folder,
            env=mini.environment() | server.environment | {"VARBAND_CACHE": str(folder / name)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for name in ("one", "two", "three")
    ]
    made = []
    for host in hosts:
        printed, _ = host.communicate(timeout=900)
        assert host.returncode == 0, printed
        made.append({*MADE.findall(printed)})
    assert sum(map(len, made)) == len(set.union(*made)), "no artifact was made by two hosts"
    return made


@pytest.mark.slow
def test_three_hosts_share_twelve_studies_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every study is finished and no rollout is sampled twice. The final evaluation of the 8 problems held out is part
    of the screening of all 32, which has the same seed."""
    root, studies = "s3://varband-sweep/team", [tmp_path / f"study-{n:02d}.toml" for n in range(12)]
    for n, path in enumerate(studies):
        path.write_text(STUDY.format(n=n))
    with object_storage() as server:
        server.make_bucket("varband-sweep")
        shared_by_three(studies, root, tmp_path, server)
        for name, value in (server.environment | {"VARBAND_CACHE": str(tmp_path / "reader")}).items():
            monkeypatch.setenv(name, value)
        ledger, runs = Ledger(root_folder(root)), all_runs(root_folder(root))
        accounts = [account for account, _ in ledger.accounts()]
        assert len(runs) == 12 and {run.current_state for run in runs} == {"finished"}
        assert sum(map(ledger.duplicates, accounts)) == 0
        assert sum(len(ledger.keys(account)) for account in accounts) == 12 * 32 * 2


@pytest.mark.slow
def test_three_hosts_share_the_trainings_of_one_study(tmp_path: Path) -> None:
    (study := tmp_path / "study.toml").write_text(TRAINED)
    with object_storage() as server:
        server.make_bucket("varband-study")
        made = shared_by_three([study], "s3://varband-study/team", tmp_path, server)
    assert all(made), "each host made something"
    trained = [[ref for ref in refs if ref.startswith("training-")] for refs in made]
    assert sum(map(len, trained)) == 4 and max(map(len, trained)) < 4, "no host trained alone"
