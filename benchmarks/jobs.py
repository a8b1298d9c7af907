"""Pieces of a simulation on many cores: what is made of one is a function of its name and its seed, whoever makes it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PIECE = 250  # trials that are made at once
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Job:
    """made: rows of so many trials from this seed. work: seconds of a hundred trials, roughly: what takes longest is
    begun first."""

    name: str
    made: Callable[[int, int], list[Row]]
    work: float


@dataclass(frozen=True, slots=True)
class Piece:
    """Trials of a job, which have the piece's number for a seed."""

    job: Job
    number: int
    trials: int

    def rows(self) -> list[Row]:
        about = {"job": self.job.name, "piece": self.number}
        return [row | about for row in self.job.made(self.trials, self.number)]


def pieces(jobs: Iterable[Job], trials: int) -> Iterator[Piece]:
    """
    >>> [(p.number, p.trials) for p in pieces([Job("a", lambda trials, seed: [], 1.0)], 600)]
    [(0, 250), (1, 250), (2, 100)]
    """
    for job in jobs:
        for number, first in enumerate(range(0, trials, PIECE)):
            yield Piece(job, number, min(PIECE, trials - first))


def make(wanted: Sequence[Piece], file: Path, workers: int) -> list[str]:
    """Appends the rows of every piece that the file does not hold, as they come. Names of those that failed."""
    done = {(row["job"], row.get("piece", 0)) for row in kept_in(file)}
    left = [piece for piece in wanted if (piece.job.name, piece.number) not in done]
    left.sort(key=lambda piece: -piece.job.work * piece.trials)
    os.environ.update(dict.fromkeys(THREADS, "1"))  # workers are started anew and read it
    failed = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        piece_of = {pool.submit(piece.rows): piece for piece in left}
        for place, answer in enumerate(as_completed(piece_of), 1):
            name = f"{piece_of[answer].job.name}, piece {piece_of[answer].number}"
            if error := answer.exception():
                failed.append(f"{name}: {error!r}")
            else:
                with file.open("a") as out:
                    out.writelines(json.dumps(row) + "\n" for row in answer.result())
            print(f"{place}/{len(left)} {failed[-1] if error else name}", flush=True)
    return failed


def kept_in(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
