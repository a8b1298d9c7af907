"""The remote engine: what it does with a provider's answers, and the same against a real vLLM server on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from storage.errors import Parked, UserError
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling.endpoint import Endpoint
from tasks.engines.sampling.openai import OpenAIGenerator
from tasks.engines.sampling.sampler import _durable_batches
from tests.tiny_model import write_tiny_model

Answer = Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]] | None]


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

        def _say(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def engine(tiny: Path, url: str) -> OpenAIGenerator:
    return OpenAIGenerator(tiny, Hardware(engine="openai", endpoint=url, max_num_seqs=8))


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
    ("status", "message"),
    [(402, "payment required"), (429, "You exceeded your current quota, please check your plan and billing details")],
)
def test_a_providers_wall_parks_after_what_finished(tiny: Path, status: int, message: str) -> None:
    def answer(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return fine(body) if n <= 20 else (status, {"error": {"message": message}})

    got: list[Completion] = []
    with provider(answer) as url:
        batches = _durable_batches(engine(tiny, url).generate(requests(40), None), whole=False)
        with pytest.raises(Parked, match="top up there") as wall:
            got.extend(completion for batch in batches for completion in batch)
    assert len(got) == 20 and wall.value.exit_code == 75


def test_a_rate_limit_is_waited_for(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.engines.sampling.endpoint.FIRST_PAUSE", 0.01)
    with provider(lambda n, b: fine(b) if n > 3 else (429, {"error": {"message": "slow down"}})) as url:
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


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_vllm(model: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        "512",
        "--max-num-seqs",
        "16",
        "--logprobs-mode",
        "processed_logprobs",
        "--kv-cache-memory-bytes",
        str(64 << 20),
        "--enable-lora",
        "--max-lora-rank",
        "8",
    ]
    silent = {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    env = {**os.environ, **silent, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with log.open("ab") as out:
        return subprocess.Popen(words, env=env, stdout=out, stderr=out, start_new_session=True)


def wait_until_up(port: int, process: subprocess.Popen[bytes], log: Path, limit: float = 240) -> None:
    until = time.monotonic() + limit
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the vLLM server did not come up:\n{log.read_text()[-3000:]}")


def engine_core(server: subprocess.Popen[bytes]) -> int:
    import psutil

    return next(
        child.pid
        for child in psutil.Process(server.pid).children(recursive=True)
        if "EngineCore" in f"{child.name()} {' '.join(child.cmdline())}"
    )


def kill(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return
    process.wait(30)


@pytest.mark.slow
def test_a_real_server_gives_log_probs_of_the_policy_and_may_be_killed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probs agree with transformers on the same tokens. First its engine core is killed, then the whole server; what
    had finished before is not asked for again. Prints the seconds from each fault to the next rollout."""
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "900")
    port, log = free_port(), tmp_path / "vllm.log"
    server = start_vllm(tiny, port, log)
    try:
        wait_until_up(port, server, log)
        sampler = engine(tiny, f"http://127.0.0.1:{port}/v1")
        assert sampler.version != "unknown"
        got: dict[int, Completion] = {}
        asked = requests(48, max_tokens=96)
        broken, recovery = 0.0, []
        for completion in sampler.generate(asked, None):
            assert completion.key not in got
            got[completion.key] = completion
            if broken and time.monotonic() - broken > 1:  # what was on its way already has arrived
                recovery.append(time.monotonic() - broken)
                broken = 0.0
            if len(got) in (10, 34):
                broken = time.monotonic()
                if len(got) == 10:
                    os.kill(engine_core(server), signal.SIGKILL)
                    server.wait(120)  # a server whose engine died ends itself
                kill(server)
                server = start_vllm(tiny, port, log)
        print("seconds to recover:", [round(seconds) for seconds in recovery])
        assert len(recovery) == 2 and sorted(got) == list(range(48))
    finally:
        kill(server)
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    for c in list(got.values())[:6] + list(got.values())[-6:]:
        ids = [*asked[c.key].prompt_ids, *c.token_ids]
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        n = len(asked[c.key].prompt_ids)
        expected = logprobs[range(n - 1, len(ids) - 1), c.token_ids].numpy()
        np.testing.assert_allclose(c.logprobs_T, expected, atol=2e-4)
