"""The official SDK, unmodified, against the server on 127.0.0.1 (extra `tinker`)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.servers import free_port, tinker_server
from tests.tiny_model import DEMO

tinker = pytest.importorskip("tinker")
PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tinker_server(tmp_path_factory.mktemp("tinker"), free_port()) as address:
        yield address


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    made = tinker.ServiceClient(base_url=url, api_key="tml-test")
    yield made
    made.close("success").result()


def sampled(sampler: Any, count: int, seed: int = 3, **how: Any) -> list[Any]:
    params = tinker.SamplingParams(max_tokens=12, seed=seed, **how)
    return sampler.sample(tinker.ModelInput.from_ints(PROMPT), count, params).result().sequences


def data_of(sequences: list[Any]) -> list[Any]:
    before, data = [0.0] * (len(PROMPT) - 1), []
    for place, one in enumerate(sequences):
        inputs = {
            "target_tokens": np.array([0] * len(before) + [*one.tokens]),
            "logprobs": np.array([*before, *one.logprobs], np.float32),
            "advantages": np.array([*before, *[(-1.0) ** place] * len(one.tokens)], np.float32),
        }
        tokens = tinker.ModelInput.from_ints([*PROMPT, *one.tokens][:-1])
        data.append(tinker.Datum(model_input=tokens, loss_fn_inputs=inputs))
    return data


def test_a_model_is_trained_saved_resumed_and_sampled(client: Any, url: str, tmp_path: Path) -> None:
    """Log-probs of the learner are the sampler's; a resumed model goes on bit by bit; saved weights sample alike."""
    base = client.create_sampling_client(base_model="demo").result()
    first = sampled(base, 4)
    assert [one.tokens for one in sampled(base, 1)] == [first[0].tokens]
    data = data_of(first)
    model = client.create_lora_training_client(base_model="demo", rank=16, seed=0).result()
    answer = model.forward_backward(data, "importance_sampling").result()
    for one, found in zip(first, answer.loss_fn_outputs, strict=True):
        assert np.allclose(found["logprobs"].data[len(PROMPT) - 1 :], one.logprobs, atol=1e-4)
    adam = tinker.AdamParams(learning_rate=1e-2, eps=1e-8)
    assert model.optim_step(adam).result().metrics["grad_norm"] > 0
    state = model.save_state("one").result().path

    def step(one: Any) -> float:
        one.forward_backward(data, "importance_sampling").result()
        one.optim_step(adam).result()
        return one.forward(data, "importance_sampling").result().metrics["loss:sum"]

    again = client.create_training_client_from_state_with_optimizer(state).result()
    new_adam = client.create_training_client_from_state(state).result()
    losses = [step(model), step(again), step(new_adam)]
    assert losses[0] == losses[1] != losses[2]
    named = client.create_sampling_client(model_path=model.save_weights_for_sampler("named").result().path).result()
    unnamed = model.save_weights_and_get_sampling_client().result()
    assert [one.tokens for one in sampled(named, 3)] == [one.tokens for one in sampled(unnamed, 3)]
    assert [one.tokens for one in sampled(named, 3)] != [one.tokens for one in first[:3]]
    rest = tinker.RestClient(base_url=url, api_key="tml-test")
    paths = [one.tinker_path for one in rest.list_checkpoints(model.model_id).result().checkpoints]
    assert state in paths and len(paths) == 2
    external = model.save_weights_external("adapter").result().path
    for name, place in rest.get_external_weights_urls(external).result().urls.items():
        (tmp_path / name).write_bytes(httpx.get(place).content)
    from tasks.engines.adapter_files import adapter_files

    adapter_files(tmp_path).check_base(DEMO)
    assert adapter_files(tmp_path).alpha == 16


def test_a_server_that_is_started_again_continues_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new server repeats the requests since the last saved state: losses and samples are those of one server."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    port, adam, found = free_port(), tinker.AdamParams(learning_rate=1e-2, eps=1e-8), {}
    for restarts in (False, True):
        with ExitStack() as server:

            def start() -> None:
                server.enter_context(tinker_server(tmp_path / str(restarts), port))  # noqa: B023

            start()
            client = tinker.ServiceClient(base_url=f"http://127.0.0.1:{port}", api_key="tml-test")
            model = client.create_lora_training_client(base_model="demo", rank=16, seed=0).result()
            data = data_of(sampled(client.create_sampling_client(base_model="demo").result(), 4))
            losses = []
            for step in range(4):
                losses.append(model.forward_backward(data, "importance_sampling").result().metrics["loss:sum"])
                if restarts:  # before the first state, after it, and with a gradient that no update has used
                    server.close()
                    start()
                model.optim_step(adam).result()
                if step == 1:
                    model.save_state("one").result()
            sampler = model.save_weights_and_get_sampling_client().result()
            found[restarts] = losses, [one.tokens for one in sampled(sampler, 3)]
    assert found[True] == found[False] and len({*found[True][0]}) == 4


def test_a_stop_ends_a_sample(client: Any) -> None:
    base = client.create_sampling_client(base_model="demo").result()
    (whole,) = sampled(base, 1)
    (cut,) = sampled(base, 1, stop=[whole.tokens[3]])
    assert cut.stop_reason == "stop" and cut.tokens == whole.tokens[: len(cut.tokens)] and len(cut.tokens) <= 4


def test_what_the_server_has_not_is_refused_with_what_it_has(client: Any) -> None:
    model = client.create_lora_training_client(base_model="demo", rank=16).result()
    base = client.create_sampling_client(base_model="demo").result()
    data, prompt = data_of(sampled(base, 2)), tinker.ModelInput.from_ints(PROMPT)
    state = model.save_state("taken").result().path
    refused = {
        "this server has demo": lambda: client.create_lora_training_client(base_model="other").result(),
        "choose from cross_entropy": lambda: model.forward_backward(data, "dro").result(),
        "there already": lambda: model.save_state("taken").result(),
        "no checkpoint": lambda: client.create_sampling_client(model_path="tinker://a/sampler_weights/b").result(),
        "a training state": lambda: client.create_sampling_client(model_path=state).result(),
        "do not fit": lambda: base.sample(prompt, 1, tinker.SamplingParams(max_tokens=9999)).result(),
        "does not support top_k": lambda: base.sample(prompt, 1, tinker.SamplingParams(max_tokens=9, top_k=5)).result(),
    }
    for message, call in refused.items():
        with pytest.raises(Exception, match=message):
            call()
    assert model.forward(data, "ppo").result().metrics


def test_a_request_that_is_sent_twice_is_one_job(url: str) -> None:
    def post(path: str, **body: Any) -> Any:
        return httpx.post(f"{url}/api/v1/{path}", json=body).raise_for_status().json()

    session = post("create_session", tags=[], user_metadata=None, sdk_version="0")["session_id"]
    lora = {"session_id": session, "model_seq_id": 0, "base_model": "demo", "lora_config": {"rank": 4}}
    first, second = post("create_model", **lora), post("create_model", **lora)
    assert first == second
    other = httpx.post(f"{url}/api/v1/create_session", json={}, headers={"Host": "evil.example"})
    assert other.status_code == 400
