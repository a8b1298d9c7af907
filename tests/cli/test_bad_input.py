"""What people mistype on the command line: one sentence that names it, exit code 2, nothing made."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests import warm

POOLS = {"a column is missing": ('{"id": "a", "problem": "1 + 1?"}\n', "pool.jsonl, line 1: no field 'gold'")}
WORDS = {
    "unknown profile": (("run", "demmo"), "'demmo'"),
    "unknown field": (("run", "demo", "--set", "training.stps=3"), "did you mean 'steps'"),
    "a name of TRL's": (("run", "demo", "--set", "training.num_generations=4"), "did you mean group_size?"),
    "longer than the model": (("run", "demo", "--set", "hardware.max_model_len=5000"), "the model has 1024 positions"),
    "no such pool": (("run", "demo", "--pool", "nowhere.jsonl"), "nowhere.jsonl"),
    "no such artifact": (("store", "show", "rollouts-0123", "--root", "."), "rollouts-0123"),
    "no such root": (("store", "ls", "--root", "mistyped"), "mistyped: there is no such folder"),
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


def test_a_server_without_an_address_is_told_before_anything_is_made(tmp_path: Path) -> None:
    assert "'' is no address of a server" in refused(tmp_path, "run", "demo", "--plain", "--engine", "openai")
    assert not list((tmp_path / ".varband").glob("*/*/manifest.json"))


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is taken" in refused(tmp_path, "serve", "--port", str(port))
