"""What a worker writes down as the command that remakes an artifact asks for exactly the same."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli.run import request_of
from cli.run import run as command_of_run
from flows.study.request import Request


@pytest.mark.parametrize(
    "request_",
    [
        Request(profile="demo"),
        Request(
            profile="demo",
            settings=("training.learning_rate=1e-3", "seeds=()", "passk.ks=(1, 2)"),
            arms=("panel", "monologue"),
            seeds=(0, 3),
            limit=5,
            pools=("/data/a b.jsonl", "/data/c.jsonl"),
            data="/data",
            model="sha256:" + "a" * 64,
            encoder="/models/e",
            engine="transformers",
            plain=True,
        ),
    ],
)
def test_a_request_and_its_command_are_the_same(request_: Request) -> None:
    name, verb, *words = shlex.split(request_.command())
    assert (name, verb) == ("varband", "run")
    given = command_of_run.make_context("run", words).params
    for other in ("root", "budget", "as_json"):
        del given[other]
    assert request_of(**given) == request_


def test_a_file_of_problems_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who reads the command in a report, and who goes on with a parked run; a set's name is no path."""
    (tmp_path / "p.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    sets = ("pool.sources=p.jsonl,amc", "arms.panel.model=./mine", "model=mine", "encoder.name=x/none", "name=p.jsonl")
    asked = ["demo", "--pool", "p.jsonl", "--pool", "amc", *(word for one in sets for word in ("--set", one))]
    with command_of_run.make_context("run", asked) as context:
        words = {k: v for k, v in context.params.items() if k not in ("root", "budget", "as_json")}
    found = request_of(**words)
    assert found.pools == (str(tmp_path / "p.jsonl"), "amc")
    assert found.settings == (
        f"pool.sources={tmp_path / 'p.jsonl'},amc",
        f"arms.panel.model={tmp_path / 'mine'}",
        *sets[2:],
    )
