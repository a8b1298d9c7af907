"""Training and sampling on a Tinker service, against this project's own server (extra `tinker`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from storage.errors import Parked, UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import LOSSES
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
from tasks.domain.policies import ServedAdapter
from tasks.engines.hardware import Execution, Hardware
from tasks.engines.learning import tinker as remote
from tasks.engines.learning.learner import TrainResult, train
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.tinker import TinkerGenerator
from tasks.engines.sampling.transformers import TransformersGenerator
from tests.engines.conftest import random_rollouts
from tests.servers import free_port, tinker_server
from tests.tiny_model import DEMO

pytest.importorskip("tinker")
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


class Killed(BaseException):
    """The end of the process, as far as anything outside it can see."""


def killed_at(monkeypatch: pytest.MonkeyPatch, place: int, when: str) -> list[int]:
    """Let the learner die at its call of this number; returns a counter of its calls."""
    calls, real = [0], remote.answered

    def answered(call: Any) -> Any:
        calls[0] += 1
        if calls[0] == place and when == "before":
            raise Killed
        found = real(call)
        if calls[0] == place:
            raise Killed
        return found

    monkeypatch.setattr(remote, "answered", answered)
    return calls


def test_a_training_that_is_killed_at_any_call_ends_as_if_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed once before and once after every call, and resumed: the same adapter bit by bit. A step is paid again only
    where no state of it exists: killed at its batch (before, after), its optimiser step, or before it is saved."""
    paid, repeated = list[int](), 0
    with monkeypatch.context() as context:
        calls = killed_at(context, 0, "")
        whole = trained(tmp_path / "whole", pay=paid.append)
    once = list(paid)
    for place in range(1, calls[0] + 1):
        for when in ("before", "after"):
            paid.clear()
            folder = tmp_path / f"{when}-{place}"
            with monkeypatch.context() as context:
                killed_at(context, place, when)
                with pytest.raises(Killed):
                    trained(folder, pay=paid.append)
            at = len(paid)
            result = trained(folder, pay=paid.append)
            assert result.steps == whole.steps and result.exposure == whole.exposure
            found, wanted = weights(result), weights(whole)
            assert all(torch.equal(found[name], wanted[name]) for name in wanted), (when, place)
            again = sum(paid[at - 1 : at]) if at and paid[at - 1 :][:2] == [paid[at - 1]] * 2 else 0
            assert sum(paid) == sum(once) + again
            repeated += bool(again)
    assert repeated == 5 * CONFIG.steps


def test_what_the_service_has_not_is_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    def never(_: StepPlan) -> list[TrainRollout]:
        raise AssertionError

    for name in LOSSES.keys() - remote.SERVICE_LOSSES.keys():
        config = replace(CONFIG, loss=name, advantage=LOSSES[name].needs_advantage or "centred", epochs=2)
        with pytest.raises(UserError, match=f"no loss {name}; it has importance_sampling"):
            trained(tmp_path, config)
    refused = {"kl_weight": 0.1, "target_modules": ("q_proj",), "lora_alpha": 32}
    for field, value in refused.items():
        with pytest.raises(UserError, match=field):
            trained(tmp_path / field, replace(CONFIG, **{field: value}))
    with pytest.raises(UserError, match=r"the service has demo.*hardware\.served_model"):
        trained(tmp_path, service="another")
    here = trained(tmp_path / "here", replace(CONFIG, steps=1), service=None)
    with pytest.raises(UserError, match="was not trained on a Tinker service"):
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


def test_a_service_that_is_away_parks_and_a_key_of_another_form_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARBAND_TINKER_TIMEOUT", "0.001")
    with pytest.raises(Parked, match=r"no answer within 0\.001 s"):
        trained(tmp_path)
    monkeypatch.setenv("VARBAND_TINKER_TIMEOUT", "60")
    monkeypatch.setenv("TINKER_API_KEY", "wrong")
    with pytest.raises(UserError, match="tml-"):
        trained(tmp_path)
