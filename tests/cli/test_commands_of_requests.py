"""What a worker writes down as the command that remakes an artifact asks for exactly the same."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli.run import request_of
from cli.run import run as command_of_run
from flows.study.request import Request


def asked(*words: str) -> Request:
    with command_of_run.make_context("run", [*words]) as context:
        return request_of(**{k: v for k, v in context.params.items() if k not in ("root", "budget", "as_json")})


def test_a_request_and_its_command_are_the_same() -> None:
    settings = ("training.learning_rate=1e-3", "passk.ks=(1, 2)", "arms=panel,monologue", "seeds=0,3", "pool.limit=5")
    settings += ("pool.sources=/data/a b.jsonl,/data/c.jsonl", f"model=sha256:{'a' * 64}", "hardware.engine=vllm")
    whole = Request(profile="demo", settings=settings, data="/data", encoder="/models/e", plain=True, name="mine")
    for request in (Request(profile="demo"), whole):
        name, verb, *words = shlex.split(request.command())
        assert (name, verb) == ("varband", "run") and asked(*words) == request
    short = ["--arms", "panel,monologue", "--seeds", "0,3", "--limit", "5", "--pool", "/data/a b.jsonl", "--pool"]
    short += ["/data/c.jsonl", "--model", f"sha256:{'a' * 64}", "--engine", "vllm"]
    assert {*asked("demo", *short).settings} == {*settings[2:]}
    assert asked("demo", "--seeds", "", "--anyway").settings == ("seeds=[]", "gate.anyway=true")


def test_a_file_of_problems_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who reads the command in a report, and who goes on with a parked run; a set's name is no path."""
    (tmp_path / "p.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    sets = ("pool.sources=p.jsonl,amc", "arms.panel.model=./mine", "model=mine", "encoder.name=x/none", "name=p.jsonl")
    found = asked("demo", *(word for one in sets for word in ("--set", one)), "--pool", "p.jsonl", "--pool", "amc")
    there = f"pool.sources={tmp_path / 'p.jsonl'},amc"
    assert found.settings == (there, f"arms.panel.model={tmp_path / 'mine'}", *sets[2:], there)
