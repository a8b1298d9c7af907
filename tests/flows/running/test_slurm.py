"""A study as jobs of a real Slurm on this machine: the time limit pauses it, Slurm requeues it, the result is the same."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.running.accounting import SCRIPT
from storage.records.runs import all_runs
from tests import mini, warm
from tests.chaos.server_faults import wait_until
from tests.needs import lacks
from tests.servers import free_port

pytestmark = pytest.mark.slow
PAUSED = "parked: stopped by SIGTERM"
LONGER = ("--engine", "transformers", "--set", "training.steps=100")
#: A requeued job starts as soon as its credential has expired, two minutes by default.
CONFIGURATION = """
ClusterName=varband
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """slurmctld and slurmd on this host; yields the environment of its users."""
    if not (shutil.which("slurmctld") and shutil.which("slurmd")):
        lacks("slurm", "no Slurm: apt-get install slurm-wlm")
    folder, host = tmp_path_factory.mktemp("slurm"), socket.gethostname().partition(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    ports = {"controller": free_port(), "daemon": free_port()}
    user = os.environ.get("USER", "root")
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder, user=user, **ports))
    environment = {**mini.environment(), "SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    for name in ("slurmctld", "slurmd"):
        with (folder / f"{name}.log").open("wb") as log:
            daemons.append(subprocess.Popen([name, "-D"], env=environment, stdout=log, stderr=log))
        time.sleep(2)
    try:
        yield environment
    finally:
        subprocess.run(["scancel", f"--user={user}"], env=environment, check=False)
        for process in reversed(daemons):
            process.terminate()
            process.wait(30)


def submitted(root: Path, environment: dict[str, str], *more: str, limits: int | None = None) -> str:
    """The standard output of the jobs, once all have ended. limits: after the job has reached its time limit this many
    times, it gets an hour, so that the test ends on a slow machine too."""
    words = mini.command(root, "--slurm", "--sbatch=--output=out", "--sbatch=--error=out", *more, verb="submit")
    done = warm.run(words, cwd=root.parent, env=environment)
    assert done.returncode == 0, done.stderr
    job, out = all_runs(root)[0].job, root.parent / "out"
    assert job is not None
    until = time.monotonic() + 840
    while time.monotonic() < until:
        time.sleep(2)
        queue = subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True, check=True)
        if not queue.stdout.strip():
            break
        if limits is not None and out.exists() and out.read_text().count(PAUSED) >= limits:
            hour = ["scontrol", "update", f"JobId={job}", "TimeLimit=60"]
            subprocess.run(hour, env=environment, check=False)  # Slurm refuses it while the job ends
    return out.read_text()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mini.finish(root := tmp_path_factory.mktemp("calm") / "root", *LONGER)
    return root


def test_a_job_that_reaches_its_time_limit_twice_makes_the_same_artifacts(
    tmp_path: Path, slurm: dict[str, str], calm: Path
) -> None:
    """The limit is three minutes; the signal comes 60 to 90 seconds after the start, of which imports and the engine take
    up to 30."""
    said = submitted(tmp_path / "root", slurm, *LONGER, "--time=3", "--sbatch=--signal=B:TERM@90", limits=2)
    assert said.count(PAUSED) >= 2, said[-3000:]
    (run,) = all_runs(tmp_path / "root")
    assert run.state == "finished" and run.attempts >= 3
    assert mini.hashes(tmp_path / "root") == mini.hashes(calm)


def test_jobs_of_an_array_share_a_study_and_a_last_one_writes_the_report(
    tmp_path: Path, slurm: dict[str, str], calm: Path
) -> None:
    said = submitted(tmp_path / "root", slurm, *LONGER, "--jobs=0", "--partition=gpu")
    one, two, last = [[int(n) for n in found] for found in re.findall(r"(\d+) of (\d+) stages made", said)]
    assert min(one[0], two[0]) > 0 and one[0] + two[0] == one[1] and last[0] == 0
    (run,) = all_runs(tmp_path / "root")
    assert run.state == "finished"
    ask = ["scontrol", "--oneliner", "show", "job"]
    jobs = subprocess.run(ask, env=slurm, capture_output=True, text=True, check=True).stdout.splitlines()
    parts = {("Array" in job, *re.findall(r" Partition=(\S+)", job)) for job in jobs if f"JobName={run.id} " in job}
    assert parts == {(True, "gpu"), (False, "main")}
    assert mini.hashes(tmp_path / "root") == mini.hashes(calm)


def test_a_cancelled_job_does_not_come_back(tmp_path: Path, slurm: dict[str, str]) -> None:
    """`scancel` sends SIGTERM, as Slurm does before a time limit, and the command pauses with 75."""
    out = tmp_path / "out"
    pause = "trap 'echo pausing; exit 75' TERM; echo began; while :; do sleep 0.1; done"
    words = ["sbatch", "--parsable", f"--output={out}", str(SCRIPT), "bash", "-c", pause]
    job = subprocess.run(words, env=slurm, capture_output=True, text=True, check=True).stdout.strip()
    wait_until(lambda: out.exists() and "began" in out.read_text())
    subprocess.run(["scancel", job], env=slurm, check=True)
    wait_until(lambda: "pausing" in out.read_text())
    time.sleep(5)
    queue = subprocess.run(["squeue", "--noheader"], env=slurm, capture_output=True, text=True, check=True)
    assert not queue.stdout
