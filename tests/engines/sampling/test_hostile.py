"""The remote engine, when a server means ill or is another than was meant: slow lines, floods, others' rollouts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from storage.errors import UserError
from tasks.engines.sampling import endpoint
from tasks.engines.sampling.answers import completion, model_of
from tasks.engines.sampling.endpoint import Endpoint
from tests.engines.sampling.test_garbage import raw
from tests.engines.sampling.test_openai import Answered, engine, fine, provider, requests


def answered(status: int, body: bytes, header: str = "") -> Callable[[socket.socket], None]:
    said = f"HTTP/1.1 {status} x\r\n{header}Content-Length: {len(body)}\r\n\r\n".encode()
    return lambda line: line.sendall(said + body)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b'{"error": {"message": "Incorrect API key provided: sk-operators-own"}}'),
        (400, b'{"error": {"message": "of sk-operators-own"}}'),
        (503, b"no room for sk-operators-own"),
        (200, b"sk-operators-own"),
    ],
)
def test_a_key_that_the_server_repeats_is_not_said(monkeypatch: pytest.MonkeyPatch, status: int, body: bytes) -> None:
    """Sentences stand in records, logs and notifications."""
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.1")
    with raw(answered(status, body)) as url, pytest.raises(UserError) as refused:
        Endpoint(url, "sk-operators-own").model(["m"])
    assert "sk-operators" not in str(refused.value) and "…" in str(refused.value)


def test_a_servers_words_move_no_terminal() -> None:
    body = b'{"error": {"message": "\\u001b[2J\\u001b]0;x\\u0007 no"}}'
    with raw(answered(400, body)) as url, pytest.raises(UserError, match="no") as refused:
        Endpoint(url, None).model(["m"])
    assert str(refused.value).isprintable()
    with pytest.raises(UserError, match="no list of models"):
        model_of(b'{"data": [{"id": "\\u001b[2J"}]}', "u", ["m"])


def test_the_key_follows_no_redirection() -> None:
    asked: list[bytes] = []
    with raw(lambda line: asked.append(b"asked")) as elsewhere:
        moved = answered(302, b"", f"Location: {elsewhere}\r\n")
        with raw(moved) as url, pytest.raises(UserError, match=r"sends elsewhere \(302\)"):
            Endpoint(url, "sk-operators-own").model(["m"])
    assert not asked


@pytest.mark.parametrize("seconds", ["nan", "-5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_a_time_to_wait_that_is_none_is_none(seconds: str) -> None:
    assert endpoint._retry_after(seconds) == 0.0 and endpoint._retry_after("inf") == 600.0


def changed(of_answer: dict[str, Any], of_choice: dict[str, Any]) -> Callable[[dict[str, Any]], Answered]:
    def answer(body: dict[str, Any]) -> Answered:
        whole = fine(body)[1]
        return 200, {**whole, "choices": [{**whole["choices"][0], **of_choice}], **of_answer}

    return answer


ANOTHERS: dict[str, Callable[[dict[str, Any]], Answered]] = {
    "another model": changed({"model": "m-mini"}, {}),
    "another prompt": changed({}, {"prompt_token_ids": [1, 2]}),
    "two choices": lambda body: (200, {"choices": fine(body)[1]["choices"] * 2}),
    "a token above the vocabulary": changed({}, {"token_ids": [5, 6, 10**6]}),
    "a token that no column holds": changed({}, {"token_ids": [5, 6, 2**63]}),
}


@pytest.mark.parametrize("kind", ANOTHERS)
def test_what_another_model_or_prompt_was_answered_is_no_rollout(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.01)
    with provider(lambda n, body: ANOTHERS[kind](body) if n % 3 == 1 else fine(body)) as url:
        got = list(engine(tiny, url).generate(requests(12), None))
    assert sorted(c.key for c in got) == list(range(12))
    assert all(c.token_ids == [5, 6, (1000 + c.key) % 200 + 10] for c in got)


def test_what_is_said_of_model_and_prompt_may_be_what_was_asked() -> None:
    (request,) = requests(1)
    body = b'{"model": "m", "choices": [{"text": "a", "token_ids": [5], "prompt_token_ids": [5, 6, 7],'
    told = completion(body + b'"logprobs": {"token_logprobs": [-1]}, "finish_reason": "stop"}]}', request, "u", "m", 6)
    assert told.token_ids == [5]


def test_of_several_models_none_is_taken_for_the_studys() -> None:
    base, adapter = {"id": "m", "root": "models/m"}, {"id": "step-3", "root": "adapters/step-3", "parent": "m"}
    alias, other = {"id": "also-m", "root": "models/m"}, {"id": "x", "root": "models/x"}
    assert model_of(orjson.dumps({"data": [adapter, base, alias]}), "u", ["M"]) == "m"
    with pytest.raises(UserError, match=r"2 models \(m, x\)"):
        model_of(orjson.dumps({"data": [base, other]}), "u", ["m"])
    assert model_of(orjson.dumps({"data": [base, other]}), "u", ["y"], served="x") == "x"
    with pytest.raises(UserError, match="no list of models"):
        model_of(orjson.dumps({"data": [adapter]}), "u", ["m"])


def test_another_model_is_not_taken_for_the_studys() -> None:
    """Its rollouts would stand in the ledger as those of the study's policy."""
    listed = orjson.dumps({"data": [{"id": "coder", "root": "/models/Other-7B"}]})
    names = ["Qwen2.5-Coder-1.5B-Instruct"]
    told = "the server has coder, and the study's model is Qwen.*set hardware.served_model=coder"
    with pytest.raises(UserError, match=told):
        model_of(listed, "u", names)
    with pytest.raises(UserError, match=r"hardware\.served_model is 'else', and the server has coder"):
        model_of(listed, "u", names, served="else")
    assert model_of(listed, "u", names, served="coder") == "coder"
    by_root = {"id": "coder", "root": "Qwen/qwen2.5-coder-1.5b-instruct"}
    assert model_of(orjson.dumps({"data": [by_root]}), "u", names) == "coder"
