"""`varband submit` with an `sbatch` that writes its arguments down; a real Slurm is in tests/flows/running/test_slurm.py."""

import json
import os
from pathlib import Path
from typing import Any

from tests import mini, warm


def test_a_submitted_run_is_listed_with_its_job_and_resumed_by_it(tmp_path: Path) -> None:
    (program := tmp_path / "sbatch").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/jobs\nwc -l < {tmp_path}/jobs\n')
    program.chmod(0o755)
    environment = {**mini.environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def varband(words: list[str]) -> Any:
        done = warm.run(words, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    root = tmp_path / "store"
    more = ("--slurm", "--jobs", "0", "--gpus", "2", "--partition", "gpu", "--time", "10", "--budget", "tokens=7")
    submitted = varband(mini.command(root, *more, verb="submit"))
    assert submitted["jobs"] == ["1", "2"]
    (row,) = varband([warm.VARBAND, "runs", "--root", str(root), "--json"])
    assert (row["id"], row["state"], row["job"]) == (submitted["run"], "queued", "1")
    array, last = (tmp_path / "jobs").read_text().splitlines()
    assert "--time=10 --partition=gpu --gpus=2 --array=0-1" in array and array.endswith("--shared")
    assert "--dependency=afterok:1" in last and "gpu" not in last and f"resume {submitted['run']}" in last


def test_a_study_whose_model_is_missing_is_not_submitted(tmp_path: Path) -> None:
    words = mini.command(tmp_path / "store", "--slurm", "--model", "not-here", verb="submit")
    done = warm.run(words, cwd=tmp_path, env=mini.environment())
    assert done.returncode == 2 and "base model not-here is not there" in done.stderr
