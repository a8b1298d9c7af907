"""Runs as jobs of Slurm: a job resumes a recorded run, so it may be requeued, pre-empted or submitted again."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.errors import UserError
from storage.roots import root_option

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "deploy" / "slurm" / "study.sbatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The jobs of one run. count: number of jobs that share the run's pieces. If there are several, another job
    follows, which writes the report: it needs no GPU and runs in the cluster's default partition. options: further
    options of sbatch for every job."""

    run: str
    root: Path
    count: int = 1
    gpus: int = 0
    partition: str | None = None
    options: Sequence[str] = ()

    def commands(self) -> Iterator[list[str]]:
        """Return the sbatch commands in order; `{}` stands for the id of the previous job."""
        resume = [sys.executable, "-m", "varband", "resume", self.run, *shlex.split(root_option(self.root))]
        sbatch = ["sbatch", "--parsable", f"--job-name={self.run}", *self.options]
        places = {"partition": self.partition, "gpus": self.gpus}
        work = [*sbatch, *(f"--{name}={value}" for name, value in places.items() if value)]
        if self.count == 1:
            yield [*work, str(SCRIPT), *resume]
            return
        yield [*work, f"--array=0-{self.count - 1}", str(SCRIPT), *resume, "--shared"]
        yield [*sbatch, "--dependency=afterok:{}", "--kill-on-invalid-dep=yes", str(SCRIPT), *resume]

    def submit(self) -> list[str]:
        """Return the ids of the submitted jobs. Raise UserError with sbatch's message if it refuses."""
        path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
        ids: list[str] = []
        for words in self.commands():
            command = [word.format(*ids) if word.startswith("--dependency") else word for word in words]
            try:
                done = subprocess.run(
                    command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
                )
            except FileNotFoundError:
                raise UserError("submit: there is no sbatch on this machine; submit from a login node") from None
            except subprocess.CalledProcessError as error:
                raise UserError(f"submit: {error.stderr.strip()}") from None
            ids.append(done.stdout.strip().partition(";")[0])
        return ids
