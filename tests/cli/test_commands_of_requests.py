"""What a worker writes down as the command that remakes an artifact asks for exactly the same."""

from __future__ import annotations

import shlex

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
