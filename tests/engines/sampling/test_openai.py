"""The remote engine: what it does with a provider's answers, garbage and other models' among them."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from storage.errors import Parked, UserError
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling import endpoint
from tasks.engines.sampling.endpoint import model_of
from tasks.engines.sampling.openai import OpenAIGenerator
from tests.servers import end, free_port

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
#: A body that is bytes is sent as it is.
Answered = tuple[int, dict[str, Any] | bytes]
Answer = Callable[[int, dict[str, Any]], Answered | None]
KEY = "sk-operators-own"


@contextmanager
def provider(answer: Answer, models: Answered = (200, {"data": [{"id": "m"}], "version": "1"})) -> Iterator[str]:
    """An address whose n-th POST is answered by `answer(n, body)`; None drops the connection."""
    numbers = itertools.count(1)

    def respond(request: httpx.Request) -> httpx.Response:
        made = models if request.method == "GET" else answer(next(numbers), json.loads(request.content))
        if made is None:
            raise httpx.RemoteProtocolError("the connection was dropped")
        status, body = made
        headers = {"Location": "/v1/elsewhere"} if status == 302 else None
        return httpx.Response(status, content=body if isinstance(body, bytes) else json.dumps(body), headers=headers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(respond)))
        yield "http://provider:8000/v1"


def fine(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    choice = {
        "text": "abc",
        "token_ids": [5, 6, body["seed"] % 200 + 10],
        "logprobs": {"token_logprobs": [-0.5, None, -9999.0]},
        "finish_reason": "stop",
    }
    return 200, {"choices": [choice]}


def changed(of_answer: dict[str, Any] | None = None, **of_choice: object) -> Callable[[dict[str, Any]], Answered]:
    def answer(body: dict[str, Any]) -> Answered:
        whole = fine(body)[1]
        return 200, {**whole, "choices": [{**whole["choices"][0], **of_choice}], **(of_answer or {})}

    return answer


def requests(n: int, max_tokens: int = 8) -> list[Request]:
    return [Request(i, (5, 6, 7 + i % 50), 1000 + i, Decoding(max_tokens=max_tokens)) for i in range(n)]


def engine(tiny: Path, url: str, served: str = "m") -> OpenAIGenerator:
    return OpenAIGenerator(tiny, Hardware(engine="openai", endpoint=url, max_num_seqs=8, served_model=served))


def kept(sampler: OpenAIGenerator, asked: list[Request], error: type[Exception], said: str) -> list[Completion]:
    """What was handed on before the call failed of this."""
    got: list[Completion] = []
    with pytest.raises(error, match=said):
        got.extend(sampler.generate(asked, None))
    return got


#: Answers of status 200 that are no rollout of the model and prompt that were asked.
GARBAGE: list[Callable[[dict[str, Any]], Answered | None]] = [
    lambda body: None,
    lambda body: (503, {"error": {"message": "warming up"}}),
    lambda body: (
        429,
        {"error": {"message": "visit https://host/account/billing to raise your quota", "code": "rate"}},
    ),
    lambda body: (200, json.dumps(fine(body)[1]).encode()[:-20]),
    lambda body: (200, b"<html><body>Please log in</body></html>"),
    lambda body: (200, {"choices": []}),
    lambda body: (200, {"choices": fine(body)[1]["choices"] * 2}),
    changed(logprobs={"token_logprobs": [-0.5]}),
    changed(token_ids=[5] * 9, logprobs={"token_logprobs": [-0.5] * 9}),
    changed(token_ids=[5, -1, 7]),
    changed(logprobs={"token_logprobs": [-0.5, 3.0, -0.5]}),
    changed(text=None),
    changed(finish_reason="abort"),
    changed({"model": "m-mini"}),
    changed(prompt_token_ids=[1, 2]),
]


def test_every_request_is_answered_once_whatever_comes_between(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.01)
    fine_with_names = changed({"model": "m"}, prompt_token_ids=None)

    def answer(n: int, body: dict[str, Any]) -> Answered | None:
        return GARBAGE[n // 2 % len(GARBAGE)](body) if n % 2 else fine_with_names(body)

    with provider(answer) as url:
        got = list(engine(tiny, url).generate(requests(80), None))
    assert sorted(c.key for c in got) == list(range(80))
    assert all(c.token_ids == [5, 6, (1000 + c.key) % 200 + 10] for c in got), "an answer went to another request"
    assert got[0].logprobs_T[0] == -0.5 and np.isnan(got[0].logprobs_T[1:]).all(), "an infinite log-prob is masked"


def refusal(status: int, **error: object) -> Callable[[dict[str, Any]], Answered]:
    return lambda _: (status, {"error": error})


QUOTA = {"message": "You exceeded your current quota"}


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        *((GARBAGE[kind], Parked, "did not answer|answered nothing but 503") for kind in (0, 1, 4, 7)),
        (refusal(429, **QUOTA, code="insufficient_quota"), Parked, "pay there"),
        (refusal(429, **QUOTA, type="insufficient_quota", code=None), Parked, "pay there"),
        (refusal(429, message="Add credits to your account to go on", code=429), Parked, "pay there"),
        (refusal(401, message="no"), UserError, "check VARBAND_OPENAI_API_KEY"),
        (refusal(400, message="prompt too long"), UserError, "prompt too long"),
        (refusal(404, message="no such model"), UserError, "no such model"),
        (refusal(302, message="elsewhere"), UserError, "302"),  # a key follows no redirection
    ],
)
def test_what_finished_before_an_error_is_kept(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception], says: str
) -> None:
    """Faults that do not end park the run, as a provider's budget limit does; a wrong request is the user's to mend."""
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.3")
    with provider(lambda n, body: fine(body) if n <= 5 else answer(body)) as url:
        assert len(kept(engine(tiny, url), requests(20), error, says)) == 5


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


def test_the_key_goes_nowhere_but_where_the_operator_said(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARBAND_OPENAI_API_KEY", KEY)
    with provider(lambda n, body: fine(body)) as theirs:
        monkeypatch.setenv("VARBAND_OPENAI_BASE_URL", theirs)
        for address in ("", theirs):
            assert len(list(engine(tiny, address).generate(requests(1), None))) == 1
        for address in (theirs.replace("provider", "another"), theirs.replace("http", "https"), "http://other/v1"):
            with pytest.raises(UserError, match="VARBAND_OPENAI_ALLOWED") as refused:
                engine(tiny, address)
            assert KEY not in str(refused.value)
        monkeypatch.setenv("VARBAND_OPENAI_BASE_URL", "https://models.example/v1")
        monkeypatch.setenv("VARBAND_OPENAI_ALLOWED", f"https://other.example/v1, {theirs}")
        assert len(list(engine(tiny, theirs).generate(requests(1), None))) == 1
        monkeypatch.setenv("VARBAND_OPENAI_API_KEY", "sk-se\ncret")
        with pytest.raises(UserError, match="VARBAND_OPENAI_API_KEY") as refused:
            engine(tiny, theirs)
        assert "sk-se" not in str(refused.value)


BASE, ADAPTER = {"id": "m", "root": "models/m"}, {"id": "step-3", "root": "adapters/step-3", "parent": "m"}
ALIAS, OTHER = {"id": "also-m", "root": "models/m"}, {"id": "x", "root": "/models/Other-7B"}
BY_ROOT = {"id": "coder", "root": "Qwen/qwen2.5-coder-1.5b-instruct"}


@pytest.mark.parametrize(
    ("listed", "names", "served", "found"),
    [
        ([ADAPTER, BASE, ALIAS], ["M"], "", "m"),
        ([BASE, OTHER], ["y"], "x", "x"),
        ([BY_ROOT], ["Qwen2.5-Coder-1.5B-Instruct"], "", "coder"),
        ([BASE, OTHER], ["m"], "", UserError(r"the server has m, x.*set hardware\.served_model")),
        ([OTHER], ["m"], "", UserError("the server has x, but the study's model is m")),
        ([ADAPTER], ["m"], "", UserError("the server has no model")),
        ([3], ["m"], "", UserError("not a list of models")),
    ],
)
def test_another_model_is_not_taken_for_the_studys(
    listed: list[Any], names: list[str] | None, served: str, found: str | UserError
) -> None:
    """Its rollouts would stand in the ledger as those of the study's policy."""
    text = orjson.dumps({"data": listed})
    if isinstance(found, str):
        assert model_of(text, "u", names, served) == found
    else:
        with pytest.raises(UserError, match=str(found)):
            model_of(text, "u", names, served)


# The remote engine against a real vLLM server, which is killed on the way.


def start_vllm(model: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    words += f"--host 127.0.0.1 --port {port} --dtype float32 --enforce-eager --max-model-len 512".split()
    words += f"--max-num-seqs 16 --logprobs-mode processed_logprobs --kv-cache-memory-bytes {64 << 20}".split()
    silent = {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    env = {**os.environ, **silent}
    with log.open("ab") as out:
        return subprocess.Popen(words, env=env, stdout=out, stderr=out, start_new_session=True)


def wait_until_up(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None:
        with suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/v1/models")
            return
        time.sleep(0.5)
    pytest.fail(f"the vLLM server did not come up:\n{log.read_text()[-3000:]}")


@pytest.mark.slow
def test_a_real_server_gives_log_probs_of_the_policy_and_may_be_killed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probs agree with transformers on the same tokens; what had finished before is not asked for again."""
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "900")
    port, log = free_port(), tmp_path / "vllm.log"
    server = start_vllm(tiny, port, log)
    try:
        wait_until_up(port, server, log)
        sampler = engine(tiny, f"http://127.0.0.1:{port}/v1", served="")
        assert sampler.version != "unknown"
        got: dict[int, Completion] = {}
        asked = requests(48, max_tokens=96)
        for completion in sampler.generate(asked, None):
            assert completion.key not in got
            got[completion.key] = completion
            if len(got) == 10:
                end(server)
                server = start_vllm(tiny, port, log)
        assert sorted(got) == list(range(48))
    finally:
        end(server)
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    for c in list(got.values())[:6] + list(got.values())[-6:]:
        ids = [*asked[c.key].prompt_ids, *c.token_ids]
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        n = len(asked[c.key].prompt_ids)
        expected = logprobs[range(n - 1, len(ids) - 1), c.token_ids].numpy()
        np.testing.assert_allclose(c.logprobs_T, expected, atol=2e-4)
