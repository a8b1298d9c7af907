"""The remote engine: what it does with a provider's answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import Parked, UserError
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling.endpoint import Endpoint
from tasks.engines.sampling.openai import OpenAIGenerator
from tasks.engines.sampling.sampler import _durable_batches

#: A body that is bytes is sent as it is.
Answered = tuple[int, dict[str, Any] | bytes]
Answer = Callable[[int, dict[str, Any]], Answered | None]


@contextmanager
def provider(answer: Answer) -> Iterator[str]:
    """A server whose n-th POST is answered by `answer(n, body)`; None drops the connection."""
    seen, lock = [0], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            self._say(200, {"data": [{"id": "m"}], "version": "1"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                seen[0] += 1
                n = seen[0]
            made = answer(n, body)
            if made is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                self._say(*made)

        def _say(self, status: int, body: dict[str, Any] | bytes) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def fine(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    ids = [5, 6, body["seed"] % 200 + 10]
    choice = {
        "text": "abc",
        "token_ids": ids,
        "logprobs": {"token_logprobs": [-0.5, None, -9999.0]},
        "finish_reason": "stop",
    }
    return 200, {"choices": [choice]}


def requests(n: int, max_tokens: int = 8) -> list[Request]:
    return [Request(i, (5, 6, 7 + i % 50), 1000 + i, Decoding(max_tokens=max_tokens)) for i in range(n)]


def engine(tiny: Path, url: str) -> OpenAIGenerator:
    return OpenAIGenerator(tiny, Hardware(engine="openai", endpoint=url, max_num_seqs=8, served_model="m"))


def test_every_request_is_answered_once_though_connections_drop_and_servers_stumble(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.engines.sampling.endpoint.FIRST_PAUSE", 0.01)

    def answer(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if n % 5 == 2:
            return None
        if n % 5 == 4:
            return 503, {"error": {"message": "warming up"}}
        return fine(body)

    with provider(answer) as url:
        got = list(engine(tiny, url).generate(requests(40), None))
    assert sorted(c.key for c in got) == list(range(40))
    assert all(c.token_ids[2] == (1000 + c.key) % 200 + 10 for c in got), "an answer went to another request"
    assert got[0].logprobs_T[0] == -0.5 and np.isnan(got[0].logprobs_T[1:]).all(), "an infinite log-prob is masked"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (402, {"message": "payment required"}),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (429, {"message": "Add credits to your account to go on", "code": 429}),
        (429, {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": None}),
    ],
)
def test_a_providers_wall_parks_after_what_finished(tiny: Path, status: int, error: dict[str, Any]) -> None:
    def answer(n: int, body: dict[str, Any]) -> Answered:
        return fine(body) if n <= 20 else (status, {"error": error})

    got: list[Completion] = []
    with provider(answer) as url:
        batches = _durable_batches(engine(tiny, url).generate(requests(40), None), whole=False)
        with pytest.raises(Parked, match="top up there") as wall:
            got.extend(completion for batch in batches for completion in batch)
    assert len(got) == 20 and wall.value.exit_code == 75


@pytest.mark.parametrize(
    "message", ["slow down", "Rate limit reached; visit https://host/account/billing to raise your quota"]
)
def test_a_rate_limit_is_waited_for_whatever_it_speaks_of(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr("tasks.engines.sampling.endpoint.FIRST_PAUSE", 0.01)
    error = {"message": message, "code": "rate_limit_exceeded"}
    with provider(lambda n, b: fine(b) if n > 3 else (429, {"error": error})) as url:
        assert len(list(engine(tiny, url).generate(requests(4), None))) == 4


def test_a_server_that_stays_away_parks(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.5")
    with provider(lambda n, b: fine(b) if n <= 5 else None) as url, pytest.raises(Parked, match="did not answer for"):
        list(engine(tiny, url).generate(requests(12), None))


@pytest.mark.parametrize(
    ("status", "says"), [(401, "check VARBAND_OPENAI_API_KEY"), (400, "prompt too long"), (404, "no such model")]
)
def test_a_wrong_request_is_the_users_to_mend(tiny: Path, status: int, says: str) -> None:
    message = says if status != 401 else "bad key"
    with (
        provider(lambda n, b: (status, {"error": {"message": message}})) as url,
        pytest.raises(UserError, match=says) as e,
    ):
        list(engine(tiny, url).generate(requests(2), None))
    assert not isinstance(e.value, Parked)


def test_a_server_draws_as_the_local_engine_does_whatever_its_model_prefers(tiny: Path) -> None:
    """`vllm serve` fills what a request leaves unsaid from the model's generation_config.json."""
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    from tasks.engines.sampling.vllm import _sampling_params

    bodies: list[dict[str, Any]] = []
    with provider(lambda n, body: bodies.append(body) or fine(body)) as url:
        list(engine(tiny, url).generate(requests(1), None))
    preferred = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1}
    preferred |= {"presence_penalty": 1.5, "frequency_penalty": 0.5}
    served = CompletionRequest(**bodies[0]).to_sampling_params(8, preferred)
    local = _sampling_params(requests(1)[0].decoding, 1000, logprobs=True)
    assert {name: getattr(served, name) for name in preferred} == {name: getattr(local, name) for name in preferred}


@pytest.mark.parametrize("processed", [True, False])
def test_log_probs_of_another_temperature_than_the_drawn_one_are_refused(tiny: Path, processed: bool) -> None:
    """Before anything is drawn. A server tells them of temperature 1 unless it was started to do otherwise."""
    drawn: list[float] = []

    def answer(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["logprobs"] == 0:
            drawn.append(body["temperature"])
            return fine(body)
        logits = np.array([2.0, 1.5, 0.0, -1.0, -1.0, -30.0]) / (body["temperature"] if processed else 1)
        top = dict(zip("abcdef", logits - np.log(np.exp(logits).sum()), strict=True))
        return 200, {"choices": [{"logprobs": {"top_logprobs": [top]}}]}

    asked = [Request(i, (5, 6), i, Decoding(max_tokens=8, temperature=0.7)) for i in range(3)]
    with provider(answer) as url:
        sampler = engine(tiny, url)
        if not processed:
            with pytest.raises(UserError, match="processed_logprobs"):
                list(sampler.generate(asked, None))
        else:
            assert len(list(sampler.generate(asked, None))) == 3
    assert drawn == ([0.7] * 3 if processed else [])


@pytest.mark.parametrize("url", ["", "ftp://h/v1", "host:8000", "http://user:secret@h/v1"])
def test_an_address_that_is_none_is_refused_without_repeating_secrets(url: str) -> None:
    with pytest.raises(UserError, match="engine openai") as error:
        Endpoint(url, None)
    assert "secret" not in str(error.value)
