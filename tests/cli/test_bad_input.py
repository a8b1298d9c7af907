"""What people mistype on the command line: one sentence that names it, exit code 2, nothing made."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from tests import warm
from tests.warm import REPO

POOLS = {
    "a column is missing": ('{"id": "a", "problem": "1 + 1?"}\n', "pool.jsonl, line 1: no field 'gold'"),
    "an id comes twice": (
        '{"id": "a", "problem": "1 + 1?", "gold": "2"}\n{"id": "a", "problem": "2 + 2?", "gold": "4"}\n',
        "pool.jsonl, line 2",
    ),
    "a line is cut off": ('{"id": "a", "problem": "1 + 1?", "gold": "2"}\n{"id": "b", "prob\n', "pool.jsonl, line 2"),
    "an answer is empty": ('{"id": "a", "problem": "1 + 1?", "gold": ""}\n', "pool.jsonl, line 1"),
    "nothing is in it": ("", "pool.jsonl"),
}
WORDS = {
    "unknown profile": (("run", "demmo"), "'demmo'"),
    "unknown arm": (("run", "demo", "--arms", "panel,choir"), "'choir'"),
    "unknown field": (("run", "demo", "--set", "training.stps=3"), "did you mean 'steps'"),
    "a name of TRL's": (("run", "demo", "--set", "training.num_generations=4"), "did you mean group_size?"),
    "a name of verl's, higher up": (("run", "demo", "--set", "lr=1e-3"), "did you mean training.learning_rate?"),
    "not a number": (("run", "demo", "--set", "training.steps=many"), "'many'"),
    "longer than the model": (("run", "demo", "--set", "hardware.max_model_len=5000"), "the model has 1024 positions"),
    "impossible number": (("run", "demo", "--set", "training.steps=-3"), "-3"),
    "seeds": (("run", "demo", "--seeds", "1,x"), "1,x"),
    "no such pool": (("run", "demo", "--pool", "nowhere.jsonl"), "nowhere.jsonl"),
    "limit of problems that are made": (("run", "demo", "--limit", "5"), "pool.synthetic=N"),
    "no such artifact": (("store", "show", "rollouts-0123", "--root", "."), "rollouts-0123"),
    "bad SQL": (("store", "sql", "select * from nowhere", "--root", "."), "nowhere"),
    "a date that Python has not": (("store", "sql", "select '1000000-01-01'::date", "--root", "."), "::varchar"),
    "the same for scripts": (("store", "sql", "select 'infinity'::timestamp", "--json", "--root", "."), "::varchar"),
    "pin without a ref": (("store", "pin", "--off", "--root", "."), "REF is missing"),
    "pin of an empty variable": (
        ("store", "pin", "", "--why", "figure 3", "--root", "."),
        "no artifact, run or study ''",
    ),
    "SQL of an empty variable's study": (("store", "sql", "select 1", "--study", "", "--root", "."), "run or study ''"),
    "no run id": (("resume", "a b", "--root", "."), "(see: varband runs)"),
    "no such root": (("store", "ls", "--root", "mistyped"), "mistyped: there is no such folder"),
    "no such root to regrade": (("grade", "store", "--root", "mistyped"), "mistyped: there is no such folder"),
    "no such kind": (("store", "ls", "rolouts", "--root", "."), "did you mean 'rollouts'?"),
    "root is a file": (("run", "demo", "--root", "a_file"), "a_file"),
    "root of a plan is a file": (("plan", "demo", "--root", "a_file"), "a_file: it is a file"),
    "root cannot be written": (("run", "demo", "--root", "/proc/varband"), "/proc/varband"),
}


def refused(folder: Path, *words: str) -> str:
    """The one sentence on standard error."""
    done = warm.run([warm.VARBAND, *words], cwd=folder)
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("varband: ")]
    assert len(said) == 1 and "Traceback" not in done.stderr, done.stderr
    return said[0]


@pytest.mark.parametrize("case", WORDS)
def test_words_on_the_command_line(tmp_path: Path, case: str) -> None:
    words, named = WORDS[case]
    (tmp_path / "a_file").write_text("not a store")
    plain = ("--plain",) if words[0] == "run" else ()
    assert named in refused(tmp_path, *words, *plain)


@pytest.mark.parametrize("place", ["pins/bands-0.json", "runs/demo-0.json"])
def test_a_folder_in_a_files_place_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    assert f"{tmp_path / place}: Is a directory" in refused(tmp_path, "store", "gc", "--root", str(tmp_path))


@pytest.mark.parametrize("case", POOLS)
def test_pool_files(tmp_path: Path, case: str) -> None:
    text, named = POOLS[case]
    (tmp_path / "pool.jsonl").write_text(text)
    assert named in refused(tmp_path, "run", "demo", "--plain", "--pool", "pool.jsonl")
    assert not list((tmp_path / ".varband").glob("*/*/manifest.json"))


def test_a_model_folder_without_weights(tmp_path: Path) -> None:
    shutil.copy(REPO / "models" / "demo" / "config.json", tmp_path)
    assert "has no weights" in refused(tmp_path, "run", "demo", "--plain", "--model", str(tmp_path))


def test_a_server_without_an_address_is_told_before_anything_is_made(tmp_path: Path) -> None:
    assert "'' is no address of a server" in refused(tmp_path, "run", "demo", "--plain", "--engine", "openai")
    assert not list((tmp_path / ".varband").glob("*/*/manifest.json"))


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is taken" in refused(tmp_path, "serve", "--port", str(port))
