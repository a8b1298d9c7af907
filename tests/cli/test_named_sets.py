"""Sets by name: a study reads the one that it is told to, and a new one is compared with the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.pool import pool
from flows.study.request import Request
from storage.artifacts.store import Store
from tasks.domain.problems.sources import SOURCES, Source

LINE = '{{"id": "{0}", "problem": "Ann holds {0} red pebbles and finds two more; how many has she?", "gold": "{1}"}}\n'


def write(folder: Path, file: str, numbers: range) -> None:
    (folder / file).write_text("".join(LINE.format(i, i + 2) for i in numbers))


HELD = "pool.heldout_per_source=3"


def test_a_named_set_is_read_in_place_of_the_problems_that_a_profile_makes(tmp_path: Path) -> None:
    write(tmp_path, "amc.jsonl", range(30))
    study = Request(profile="demo", data=str(tmp_path), settings=("pool.limit=9", "pool.sources=amc", HELD)).study(
        Store(tmp_path / "store")
    )
    [spec] = study.pools[""].sources
    assert spec.name == "amc" and study.pools[""].policy.limit == 9


def test_a_new_set_is_compared_with_every_other_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(name: str) -> str:
        done = CliRunner().invoke(pool, ["check", name, "--data", str(tmp_path), "--root", str(tmp_path / "store")])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    monkeypatch.setitem(SOURCES, "pebbles", Source(name="pebbles", file="pebbles.jsonl", hub="nowhere/pebbles"))
    write(tmp_path, "amc.jsonl", range(40, 44))
    assert checked("amc").endswith("compared with no other set")
    (tmp_path / "pebbles.jsonl").write_text('{"id": "x", "problem": "What is the root of nine?", "gold": "3"}\n')
    assert checked("amc").endswith("no duplicates in pebbles")
    write(tmp_path, "aime24.jsonl", range(40, 41))
    assert "duplicates in other sets" in checked("amc") and "aime24" in checked("amc")
