"""The Tinker server's learner: its gradient is the local learner's, and models take turns without a trace."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR
from tasks.domain.grpo.steps import TrainRollout
from tasks.engines.hardware import Execution
from tasks.engines.tinker_server.checkpoints import Missing, Shape, find, folder_of, listed, writing
from tasks.engines.tinker_server.learner import Datum, Learner, Model
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_packed import PROBLEMS, grouped

ADAM = SimpleNamespace(learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, grad_clip_norm=0.0)


def learner_of(base: Path, budget: int = 8192) -> Learner:
    return Learner(base, 4, ALL_LINEAR, 8, Execution(device="cpu", token_budget=budget))


def data_of(rollouts: list[TrainRollout], scale: float = 1.0) -> list[Datum]:
    """As the cookbook builds them: prompt tokens predict with advantage 0."""
    data = []
    for group in grouped(rollouts).values():
        mean = np.mean([r.correct for r in group])
        for r in group:
            before = len(r.prompt_ids) - 1
            pad = np.zeros(before, np.float32)
            inputs = {
                "logprobs": np.concatenate([pad, r.logprobs_T]),
                "advantages": np.concatenate([pad, np.full(len(r.token_ids), (r.correct - mean) * scale, np.float32)]),
            }
            targets = np.array([0] * before + [*r.token_ids])
            data.append(Datum(np.array([*r.prompt_ids, *r.token_ids][:-1]), targets, inputs))
    return data


def test_models_take_turns_without_a_trace(tiny_base: Path) -> None:
    """Two models by turns end where each ends alone; a gradient waits for its model's next turn."""
    data, shape = data_of(random_rollouts(PROBLEMS, 4, seed=2)), Shape("tiny", 4, ALL_LINEAR, 7)

    def trained(turns: str) -> dict[str, torch.Tensor]:
        learner, models = learner_of(tiny_base), {name: Model(name, shape) for name in "ab"}
        for name in turns:
            learner.show(models[name])
            learner.losses(data if name == "a" else data[:3], "importance_sampling", {}, forward_only=False)
            learner.show(models["a" if name == "b" else "b"])
            learner.show(models[name])
            learner.step(ADAM)
        learner.show(models["a"])
        return {name: tensor.clone() for name, tensor in learner.updater.kept().items()}

    alone, turns = trained("aaa"), trained("abaab")
    assert alone.keys() == turns.keys() and all(torch.equal(alone[name], turns[name]) for name in alone)


def test_forward_leaves_no_gradient_and_a_bad_one_no_step(tiny_base: Path) -> None:
    learner, data = learner_of(tiny_base), data_of(random_rollouts(PROBLEMS, 2, seed=3))
    learner.losses(data, "importance_sampling", {}, forward_only=True)
    assert not learner.policy.lora.grad.any()
    before = learner.policy.lora.master.clone()
    learner.policy.lora.grad.fill_(float("nan"))
    with pytest.raises(UserError, match="the weights stay unchanged"):
        learner.step(ADAM)
    assert torch.equal(before, learner.policy.lora.master) and not learner.policy.lora.grad.any()
    for loss, message in (("dro", "choose from cross_entropy"), ("cross_entropy", "no weights")):
        with pytest.raises(UserError, match=message):
            learner.losses(data, loss, {}, forward_only=True)


def test_a_checkpoint_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    shape, path = Shape("demo", 4, ("q_proj",), 0), "tinker://s:train:0/weights/one"
    with pytest.raises(ZeroDivisionError), writing(tmp_path, path, shape) as folder:
        (folder / "half").write_text(str(1 / 0))
    with pytest.raises(Missing):
        find(tmp_path, path)
    with writing(tmp_path, path, shape) as folder:
        (folder / "whole").write_text("")
    with pytest.raises(UserError, match="is there already"), writing(tmp_path, path, shape):
        pass
    assert find(tmp_path, path).shape == shape and find(tmp_path, path).path == path
    assert [one.path for one in listed(tmp_path, "s:train:0")] == [path]
    for other in ("/tmp/x", "tinker://s/weights", "tinker://../weights/x", "tinker://s/other/x"):
        with pytest.raises(UserError):
            folder_of(tmp_path, other)
