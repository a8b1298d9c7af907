"""Runs as jobs of Slurm: a job resumes a recorded run, so it may be requeued, pre-empted or submitted again."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from storage.errors import UserError
from storage.roots import root_option

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "deploy" / "slurm" / "study.sbatch"


def jobs(run: str, root: Path, count: int, options: Sequence[str], **places: object) -> Iterator[list[str]]:
    """Yield the sbatch commands of one run in order; `{}` stands for the id of the previous job. count: number of jobs
    that share the run's pieces. If there are several, another job follows, which writes the report: it needs no GPU and
    runs in the cluster's default partition. options: those of every job. places: partition and GPUs of the others."""
    resume = [sys.executable, "-m", "varband", "resume", run, *shlex.split(root_option(root))]
    sbatch = ["sbatch", "--parsable", f"--job-name={run}", *options]
    work = [*sbatch, *(f"--{name}={value}" for name, value in places.items() if value)]
    if count == 1:
        yield [*work, str(SCRIPT), *resume]
        return
    yield [*work, f"--array=0-{count - 1}", str(SCRIPT), *resume, "--shared"]
    yield [*sbatch, "--dependency=afterok:{}", "--kill-on-invalid-dep=yes", str(SCRIPT), *resume]


def submit(commands: Iterable[Sequence[str]]) -> list[str]:
    """Return the ids of the submitted jobs. Raise UserError with sbatch's message if it refuses."""
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    ids: list[str] = []
    for words in commands:
        command = [word.format(*ids) if word.startswith("--dependency") else word for word in words]
        environment = {**os.environ, "PYTHONPATH": path}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise UserError("submit: there is no sbatch on this machine; submit from a login node") from None
        except subprocess.CalledProcessError as error:
            raise UserError(f"submit: {error.stderr.strip()}") from None
        ids.append(done.stdout.strip().partition(";")[0])
    return ids
