"""Studies that several processes share without a server: each piece is made by one of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from storage.ledger import Ledger
from storage.records.runs import all_runs
from storage.roots import root_folder
from tests import mini
from tests.s3_server import object_storage

MADE = re.compile(r"^ *((?:screen|train|embed|evaluate) .*?) +made ", re.MULTILINE)
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
#: What a host does: its studies one after another.
HOST = """
import sys
from cli.main import varband
root, *studies = sys.argv[1:]
for study in studies:
    varband(["run", study, "--shared", "--engine", "transformers", "--root", root], standalone_mode=False)
"""


@pytest.mark.slow
def test_three_hosts_share_twelve_studies_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host has a working copy of its own. Every study is finished and no rollout is sampled twice. The final
    evaluation of the 8 problems held out is part of the screening of all 32, which has the same seed."""
    root, studies = "s3://varband-sweep/team", [tmp_path / f"study-{n:02d}.toml" for n in range(12)]
    for n, path in enumerate(studies):
        path.write_text(STUDY.format(n=n))
    with object_storage() as server:
        server.make_bucket("varband-sweep")
        hosts = [
            subprocess.Popen(
                [sys.executable, "-c", HOST, root, *map(str, studies)],
                cwd=tmp_path,
                env=mini.environment() | server.environment | {"VARBAND_CACHE": str(tmp_path / name)},
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
        for name, value in (server.environment | {"VARBAND_CACHE": str(tmp_path / "reader")}).items():
            monkeypatch.setenv(name, value)
        ledger, runs = Ledger(root_folder(root)), all_runs(root_folder(root))
        accounts = [account for account, _ in ledger.accounts()]
        assert all(made), "each host made something"
        assert len(runs) == 12 and {run.current_state for run in runs} == {"finished"}
        assert sum(map(ledger.duplicates, accounts)) == 0
        assert sum(len(ledger.keys(account)) for account in accounts) == 12 * 32 * 2
