"""How benchmarks/coverage.py shares its work out."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pytest

from benchmarks.cells import made
from benchmarks.coverage import PARTS
from benchmarks.further_figures import further_figures
from benchmarks.jobs import Job, Piece, kept_in, make
from benchmarks.tally import of_pieces
from tests.measures.simulated import Cell

pytestmark = pytest.mark.slow


def test_rows_are_the_same_whoever_makes_them_and_are_not_made_twice(tmp_path: Path) -> None:
    """Seeds belong to the piece: one process and two give the same rows, and more trials add to what is there."""
    jobs = [job for job in further_figures() if job.name in ("token lengths, 20", "token lengths, 100")]
    wanted = [Piece(job, number, 6) for job in jobs for number in (0, 1)]
    assert len(jobs) == 2
    kept = []
    for workers in (1, 2):
        file = tmp_path / f"{workers}.jsonl"
        assert make(wanted[:3], file, workers) == make(wanted, file, workers) == []
        kept.append(kept_in(file))
        assert make(wanted, file, workers) == []
        assert kept_in(file) == kept[-1]
    by_name = [sorted(rows, key=lambda r: (r["job"], r["piece"], r["figure"], r["design"])) for rows in kept]
    assert by_name[0] == by_name[1]
    whole = of_pieces(by_name[0])
    assert len(whole) == 4 + 4
    assert {row["trials"] for row in whole} == {12}


def test_every_job_has_a_name_of_its_own_and_can_be_sent_to_a_worker() -> None:
    jobs = [job for part in PARTS.values() for job in part()]
    assert len({job.name for job in jobs}) == len(jobs)
    assert [job.name for job in pickle.loads(pickle.dumps(jobs))] == [job.name for job in jobs]


def test_a_piece_that_fails_is_told_and_costs_no_other(tmp_path: Path) -> None:
    bad = Job("no such population", partial(made, Cell("nowhere", 10)), 1.0)
    good = next(job for job in further_figures() if job.name == "token lengths, 20")
    failed = make([Piece(bad, 0, 2), Piece(good, 0, 2)], tmp_path / "kept.jsonl", 1)
    assert len(failed) == 1 and "no such population, piece 0: KeyError" in failed[0]
    assert {row["job"] for row in kept_in(tmp_path / "kept.jsonl")} == {good.name}
