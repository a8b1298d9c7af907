"""The matched study on a real model: draw its pools, and run it on a GPU machine that is handed back.

`python -m benchmarks.matched pool math_train.jsonl DIR` draws 1,600 problems of MATH's training half of levels 3 to 5 for
the study and 800 others of the same levels for its second lesson. They are drawn by hash, so that every subject has its
share: the file's first problems are all algebra. `python -m benchmarks.matched lease …` runs the study for so many seconds and puts
what is new into numbered archives as it goes, so that nothing has to be done at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import click

from storage.errors import Parked
from storage.records.copies import copy_study

SEED = 20261126
LEVELS = ("3", "4", "5")
#: The rows of each pool, in the order drawn: the study's problems, then the second lesson's.
POOLS = {"math_l345.jsonl": slice(1600), "math_l345_lesson.jsonl": slice(1600, 2400)}


@click.group()
def main() -> None:
    """Draw the matched study's problems and run it."""


@main.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
def pool(source: Path, dest: Path) -> None:
    """Draw the pools from SOURCE (math_train.jsonl) into the folder DEST and print their SHA-256."""
    rows = [row for row in map(json.loads, source.read_text().splitlines()) if row["level"] in LEVELS]
    rows.sort(key=lambda row: _rank(row["uid"]))
    for name, part in POOLS.items():
        chosen = rows[part]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
        (dest / name).write_text(text)
        print(f"{name}: {len(chosen)} problems, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


@main.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--root", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--seconds", type=float, required=True, help="When the run is told to stop; the last archive follows.")
@click.option("--every", type=float, default=60.0, show_default=True, help="Seconds between archives.")
@click.argument("study", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def lease(out: Path, root: Path, seconds: float, every: float, study: Path, options: tuple[str, ...]) -> None:
    """Run STUDY with OPTIONS of `varband run` (after `--`), again where a fault ended it.

    OUT holds `NNN.tar`: what was new in a light copy of the root each time, without the ledger; at most 16 MB each, unless
    one file is larger. Unpacked in order into one folder they are a root. `done` is there at the end.
    """
    out.mkdir(parents=True, exist_ok=True)
    home, packed, end = out.parent / f"{out.name}.copy", {}, time.monotonic() + seconds
    command = [sys.executable, "-m", "varband", "run", str(study), "--root", str(root), *options]
    log = out / f"{study.stem}.log"
    for _ in range(3):
        with log.open("a") as file:
            run = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        while run.poll() is None and time.monotonic() < end:
            try:
                run.wait(min(every, max(0.0, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                _pack(root, home, out, packed)
        run.terminate()
        try:
            run.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # its arms and engines too: they hold what the copy waits for
        _pack(root, home, out, packed)
        if run.returncode in (0, Parked.exit_code) or time.monotonic() >= end:
            break
    (out / "done").touch()


def _pack(root: Path, home: Path, out: Path, packed: dict[Path, float], limit: int = 16_000_000) -> None:
    """Archive what is new or changed since the last time."""
    if not root.is_dir():
        return
    copy_study(root, home, weights=False)
    files = [
        path for path in sorted(home.rglob("*")) if path.is_file() and "ledger" not in path.relative_to(home).parts
    ]
    new = [path for path in files if packed.get(path) != path.stat().st_mtime]
    while new:
        number, size = len(list(out.glob("*.tar"))), 0
        writing = out / f"{number:03d}.new"
        with tarfile.open(writing, "w") as tar:
            while new and (not size or size + new[0].stat().st_size < limit):
                path = new.pop(0)
                tar.add(path, path.relative_to(home))
                size += path.stat().st_size + 1024
                packed[path] = path.stat().st_mtime
        writing.rename(out / f"{number:03d}.tar")


def _rank(uid: str) -> str:
    return hashlib.sha256(f"{SEED}:{uid}".encode()).hexdigest()


if __name__ == "__main__":
    main()
