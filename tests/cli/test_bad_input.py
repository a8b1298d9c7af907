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
}
WORDS = {
    "unknown profile": (("run", "demmo"), "'demmo'"),
    "unknown arm": (("run", "demo", "--arms", "panel,choir"), "'choir'"),
    "unknown field": (("run", "demo", "--set", "training.stps=3"), "did you mean 'steps'"),
    "a name of TRL's": (("run", "demo", "--set", "training.num_generations=4"), "did you mean group_size?"),
    "not a number": (("run", "demo", "--set", "training.steps=many"), "'many'"),
    "longer than the model": (("run", "demo", "--set", "hardware.max_model_len=5000"), "the model has 1024 positions"),
    "seeds": (("run", "demo", "--seeds", "1,x"), "seeds is 'x'"),
    "no such pool": (("run", "demo", "--pool", "nowhere.jsonl"), "nowhere.jsonl"),
    "limit of problems that are made": (("run", "demo", "--limit", "5"), "pool.synthetic=N"),
    "no such artifact": (("store", "show", "rollouts-0123", "--root", "."), "rollouts-0123"),
    "bad SQL": (("store", "sql", "select * from nowhere", "--root", "."), "nowhere"),
    "a date that Python has not": (("store", "sql", "select '1000000-01-01'::date", "--root", "."), "::varchar"),
    "no run id": (("resume", "a b", "--root", "."), "(see: varband runs)"),
    "no such root": (("store", "ls", "--root", "mistyped"), "mistyped: there is no such folder"),
    "no such kind": (("store", "ls", "rolouts", "--root", "."), "did you mean 'rollouts'?"),
    "root is a file": (("run", "demo", "--root", "a_file"), "a_file"),
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
