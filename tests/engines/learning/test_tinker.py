"""Training and sampling on a Tinker service, against this project's own server (extra `tinker`)."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi import HTTPException
from safetensors.torch import load_file

from storage.errors import Parked, UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
from tasks.domain.policies import ServedAdapter
from tasks.engines import tinker_service
from tasks.engines.hardware import Execution, Hardware
from tasks.engines.learning import tinker as remote
from tasks.engines.learning.learner import TrainResult, train
from tasks.engines.learning.tinker import RemoteModel
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.tinker import TinkerGenerator
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.engines.tinker_server.learner import Learner
from tests.engines.conftest import random_rollouts
from tests.servers import free_port, tinker_server
from tests.tiny_model import DEMO

Api = pytest.importorskip("tasks.engines.tinker_server.api").Api
CONFIG = LearnerConfig(
    steps=3, groups_per_step=2, group_size=4, learning_rate=1e-3, lora_rank=4, lora_alpha=16, eval_every=3
)
PROBLEMS = [PromptProblem(f"p{i}", "s") for i in range(4)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tinker_server(tmp_path_factory.mktemp("tinker"), free_port()) as address:
        yield address


@pytest.fixture(autouse=True)
def operator(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", url)
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")


def sample(plan: StepPlan) -> list[TrainRollout]:
    return random_rollouts(plan.problem_ids, plan.group_size, plan.step)


def trained(workdir: Path, config: LearnerConfig = CONFIG, *, service: str | None = "demo", **how: Any) -> TrainResult:
    execution = Execution(device="cpu", service=service)
    given = {"base": DEMO, "problems": PROBLEMS, "config": config, "execution": execution, "workdir": workdir}
    return train(sample=sample, **given, **how)


def weights(result: TrainResult) -> dict[str, torch.Tensor]:
    return load_file(result.kept_adapters[-1] / "adapter_model.safetensors")


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, loss="grpo", advantage="standardised", minibatches=2, epochs=2, grad_clip=1.0),
        replace(CONFIG, loss="tis", weight_decay=0.01),
        replace(
            CONFIG, loss="rloo", advantage="leave_one_out", target_modules=("q_proj", "k_proj", "v_proj", "o_proj")
        ),
        replace(CONFIG, loss="cispo", clip_high=0.3),
    ],
    ids=lambda config: config.loss,
)
def test_a_training_there_is_the_one_here(tmp_path: Path, config: LearnerConfig) -> None:
    """Three steps of Adam: the adapters differ by rounding, and so do the metrics; entropy is unknown there."""
    there, here = trained(tmp_path / "there", config), trained(tmp_path / "here", config, service=None)
    found, wanted = weights(there), weights(here)
    assert found.keys() == wanted.keys()
    start = 1e-3 * config.steps * config.updates  # what Adam may move a weight
    assert max(float((found[name] - wanted[name]).abs().max()) for name in found) < 1e-3 * start
    for one, other in zip(there.steps, here.steps, strict=True):
        assert one["entropy"] is None and one.keys() == other.keys()
        known = {name: value for name, value in other.items() if name not in ("entropy", "kl_start")}
        assert {name: one[name] for name in known} == pytest.approx(known, rel=1e-3, abs=1e-6)


class Paid(dict[str, int]):
    """Tokens by key, charged once, as a run's journal does."""

    def __call__(self, tokens: int, key: str) -> None:
        assert self.setdefault(key, tokens) == tokens


class Killed(BaseException):
    """The end of the process, as far as anything outside it can see."""


def killed_at(monkeypatch: pytest.MonkeyPatch, place: int, when: str) -> list[int]:
    """Let the learner die at its call of this number: before it is sent, or while its answer is awaited. Returns a
    counter of its calls."""
    calls, real = [0], tinker_service.answered

    def answered(call: Any, gone: str = "") -> Any:
        calls[0] += 1
        dies = calls[0] == place
        if dies and when == "during":
            call()
        if dies:
            raise Killed
        return real(call, gone)

    monkeypatch.setattr(remote, "answered", answered)
    monkeypatch.setattr(tinker_service, "answered", answered)
    return calls


@pytest.fixture
def done_there(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what the server computes: gradients and optimiser steps."""
    done, losses, step = Counter[str](), Learner.losses, Learner.step

    def counted_losses(self: Learner, *given: Any, forward_only: bool) -> Any:
        done["gradients"] += not forward_only
        return losses(self, *given, forward_only=forward_only)

    def counted_step(self: Learner, adam: Any) -> float:
        done["steps"] += 1
        return step(self, adam)

    monkeypatch.setattr(Learner, "losses", counted_losses)
    monkeypatch.setattr(Learner, "step", counted_step)
    return done


def test_a_training_that_is_killed_at_any_call_ends_as_if_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done_there: Counter[str]
) -> None:
    """Killed at every call of a step and resumed: the same adapter bit by bit, and nothing is computed or charged
    twice."""
    paid, begun, config = Paid(), list[int](), replace(CONFIG, steps=2, eval_every=2, minibatches=2)
    with monkeypatch.context() as context:
        calls = killed_at(context, 0, "")
        whole = trained(tmp_path / "whole", config, pay=lambda *_: begun.append(calls[0]))
    trained(tmp_path / "twice", config, pay=paid)
    once, work = [*paid.values()], done_there - Counter({name: n // 2 for name, n in done_there.items()})
    for place, when in product(range(begun[2] + 1, calls[0] + 1), ("before", "during")):
        paid.clear()
        done_there.clear()
        folder = tmp_path / f"{when}-{place}"
        with monkeypatch.context() as context:
            killed_at(context, place, when)
            with pytest.raises(Killed):
                trained(folder, config, pay=paid)
        result = trained(folder, config, pay=paid)
        assert result.steps == whole.steps and result.exposure == whole.exposure
        found, wanted = weights(result), weights(whole)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted), (when, place)
        assert ([*paid.values()], done_there) == (once, work), (when, place)


def test_a_step_whose_model_is_lost_before_it_is_saved_is_paid_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid, whole = Paid(), trained(tmp_path / "whole")

    def lost_at_save(self: RemoteModel, sums: Any) -> None:
        httpx.post(f"{url}/api/v1/sessions/{self.client.holder.get_session_id()}/finish").raise_for_status()
        save(self, sums)

    save = RemoteModel.save
    with monkeypatch.context() as context:
        context.setattr(RemoteModel, "save", lost_at_save)
        with pytest.raises(Parked, match="lost the model in training"):
            trained(tmp_path / "lost", pay=paid)
    result = trained(tmp_path / "lost", pay=paid)
    charges = [*paid.values()]
    assert result.steps == whole.steps and charges[0] == charges[1] and len(charges) == CONFIG.steps + 1


def test_what_the_service_has_not_is_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no loss gspo; it has importance_sampling"):
        trained(tmp_path, replace(CONFIG, loss="gspo", epochs=2))
    other = replace(CONFIG, lora_alpha=32)
    alpha = r"training\.lora_alpha is 32, but .* have 16: .* --lora-alpha 32"
    with pytest.raises(UserError, match=alpha):
        trained(tmp_path / "alpha", other)
    with pytest.raises(UserError, match=alpha):
        tinker_service.Service(["demo"], "").check_alpha(other)
    tinker_service.Service(["demo"], "").check_alpha(CONFIG)
    with pytest.raises(UserError, match=r"the service has demo.*hardware\.served_model"):
        trained(tmp_path, service="another")
    here = trained(tmp_path / "here", replace(CONFIG, steps=1), service=None)
    with pytest.raises(UserError, match="can only start from an adapter that it trained"):
        trained(tmp_path / "there", init_adapter=here.kept_adapters[-1])


def test_a_lesson_starts_from_the_weights_that_an_earlier_one_saved(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    second = trained(tmp_path / "second", init_adapter=first.kept_adapters[-1])
    here = trained(tmp_path / "here", init_adapter=first.kept_adapters[-1], service=None)
    found, wanted = weights(second), weights(here)
    assert max(float((found[name] - wanted[name]).abs().max()) for name in found) < 3e-6


def test_samples_there_are_the_samples_here(tmp_path: Path) -> None:
    """Token by token, of the base model and of an adapter; the adapter's files serve other engines."""
    hardware = Hardware(engine="tinker", device="cpu", max_model_len=256)
    there, here = TinkerGenerator(DEMO, hardware), TransformersGenerator(DEMO, hardware)
    adapter = ServedAdapter("trained", trained(tmp_path).kept_adapters[-1])
    decoding = Decoding(max_tokens=24, stop=("</answer>",))
    requests = [Request(i, (5, 6, 7 + i % 3), 100 + i, decoding) for i in range(12)]
    for one in (None, adapter):
        found = {c.key: c for c in there.generate(requests, one)}
        for wanted in here.generate(requests, one):
            got = found[wanted.key]
            assert (got.text, got.token_ids, got.finish) == (wanted.text, wanted.token_ids, wanted.finish)
            assert np.allclose(got.logprobs_T, wanted.logprobs_T, atol=1e-4)
    with pytest.raises(UserError, match="was not trained on a Tinker service"):
        next(there.generate(requests, ServedAdapter("other", tmp_path)))


def answering(monkeypatch: pytest.MonkeyPatch, method: str, status: int, times: int, **headers: str) -> list[float]:
    """Let the server answer the first calls of a method with this status; 0: two seconds late. Returns the times of all
    calls."""
    calls, real = list[float](), getattr(Api, method)

    @wraps(real)
    def answer(*given: Any) -> Any:
        calls.append(time.monotonic())
        if len(calls) > times:
            return real(*given)
        if not status:
            time.sleep(2)
        raise HTTPException(status or 500, "so it is", headers={k.replace("_", "-"): v for k, v in headers.items()})

    monkeypatch.setattr(Api, method, answer)
    return calls


REQUESTS = [Request(i, (5, 6, 7), i, Decoding(max_tokens=4)) for i in range(2)]


def sampled() -> list[Any]:
    return [*TinkerGenerator(DEMO, Hardware(engine="tinker", device="cpu", max_model_len=256)).generate(REQUESTS, None)]


@pytest.mark.parametrize(
    ("method", "status", "kind", "message"),
    [
        ("create_session", 402, Parked, "no credit"),
        ("asample", 402, Parked, "no credit"),
        ("create_session", 401, UserError, "TINKER_API_KEY"),
        ("create_session", 0, Parked, r"no answer within 1 s \(VARBAND_TINKER_TIMEOUT\)"),
        ("create_sampling_session", 404, Parked, "resumes"),
    ],
)
def test_a_refusal_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, method: str, status: int, kind: type[UserError], message: str
) -> None:
    monkeypatch.setenv("VARBAND_TINKER_TIMEOUT", "20" if status else "1")
    answering(monkeypatch, method, status, 99)
    with pytest.raises(kind, match=message) as found:
        sampled()
    assert type(found.value) is kind


def test_credit_that_is_missing_at_the_start_parks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK raises an AttributeError there."""

    class Unpaid(dict[str, Any]):
        def __getitem__(self, path: str) -> Any:
            raise HTTPException(402, "so it is")

    monkeypatch.setattr("tasks.engines.tinker_server.app.FIXED", Unpaid({"client/config": {}}))
    with pytest.raises(Parked, match="no credit"):
        sampled()


def test_samples_wait_as_long_as_the_service_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = answering(monkeypatch, "asample", 429, 2, Retry_After="3")
    assert len(sampled()) == 2
    assert len(calls) == 4 and calls[2] - calls[0] >= 3


def test_a_service_that_is_away_parks_and_a_key_of_another_form_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "wrong")
    with pytest.raises(UserError, match="tml-"):
        trained(tmp_path)
    monkeypatch.setenv("TINKER_BASE_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Parked, match="does not answer"):
        trained(tmp_path)


def test_an_adapter_holds_its_paths_and_when_they_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    until, real = datetime(2026, 12, 28, tzinfo=UTC), RemoteModel._listed
    monkeypatch.setattr(
        RemoteModel, "_listed", lambda *given: [one.model_copy(update={"expires_at": until}) for one in real(*given)]
    )
    adapter = trained(tmp_path).kept_adapters[-1]
    found = json.loads((adapter / "tinker.json").read_text())
    assert found["state_expires"] == until.isoformat() and found["state"].startswith("tinker://")
    (adapter / "tinker.json").write_text(json.dumps(found | {"state": found["state"] + "-gone"}))
    with pytest.raises(UserError, match="no longer has its state, which expires at 2026-12-28"):
        trained(tmp_path / "second", init_adapter=adapter)
