"""LoRA on the experts of a mixture: its files, and its gradients against float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, LearnerConfig
from tasks.domain.grpo.steps import TrainRollout
from tasks.engines.adapter_files import adapter_files
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts, shifted
from tests.engines.learning.test_packed import PROBLEMS, grouped
from tests.engines.learning.test_updates import sampled_by
from tests.engines.sampling.test_serving import TARGETS, moe_config
from tests.tiny_model import adapter, write_tiny_mixture

DOWN = (*ATTENTION, "down_proj")
# Experts with a rank of their own: each matrix of that rank and scaled by it, wherever the adapter goes.


CONFIG = LearnerConfig(
    steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=32, lora_alpha=32, expert_rank=8
)


@pytest.fixture(scope="module")
def policy(tiny_mixture: Path) -> Policy:
    return shifted(Policy(tiny_mixture, CONFIG, Execution(device="cpu")))


@pytest.fixture(scope="module")
def written(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter")
    policy.lora.export(folder, policy.base, torch.float32)
    return folder


def test_vllm_reads_rank_and_scale_of_every_matrix(written: Path) -> None:
    helper = pytest.importorskip("vllm.lora.peft_helper").PEFTHelper.from_local_dir(str(written), None)
    for name, matrix in load_file(written / "adapter_model.safetensors").items():
        module, _, which = name.removeprefix("base_model.model.").partition(".lora_")
        rank, scale = helper.get_rank_and_scaling(module)
        assert (rank, scale) == ((8, 4.0) if ".experts." in name else (32, 1.0)), name
        assert rank == (matrix.shape[0] if which == "A.weight" else matrix.shape[1])


def test_what_was_written_is_gone_on_with_and_other_ranks_are_refused(policy: Policy, written: Path) -> None:
    again = Policy(policy.base, CONFIG, Execution(device="cpu"))
    again.lora.load(written, policy.base)
    assert torch.equal(again.lora.master, policy.lora.master)
    other = Policy(policy.base, replace(CONFIG, expert_rank=None), Execution(device="cpu"))
    with pytest.raises(UserError, match=r"has expert_rank 8 and not 32, the recipe's value"):
        other.lora.load(written, policy.base)


def test_an_adapter_made_elsewhere_says_both_ranks(written: Path, tmp_path: Path) -> None:
    found = adapter_files(written)
    assert (found.rank, found.expert_rank, found.largest_rank) == (32, 8, 32)
    found.check_recipe(CONFIG)
    with pytest.raises(
        UserError, match=r"has lora_rank 32 and not 16; expert_rank 8 and not 16, the recipe's value: change the"
    ):
        found.check_recipe(replace(CONFIG, lora_rank=16, expert_rank=None))
    several = adapter(tmp_path / "several", rank=4, ranks={"q_proj": 2})
    with pytest.raises(UserError, match="only one rank of linear layers and one of experts are served"):
        adapter_files(several)


# A whole mixture's gradients, matrix by matrix, against float64 through weights that hold the adapter.


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights so large that a third of the gradient is the experts'."""
    shape = {"num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 3, "initializer_range": 0.2}
    return write_tiny_mixture(tmp_path_factory.mktemp("mixture"), **shape)


def whole_weights(
    frozen: dict[str, torch.Tensor], matrices: dict[str, torch.Tensor], alpha: int
) -> dict[str, torch.Tensor]:
    """W + alpha / r · B·A, of experts one by one."""

    def product(module: str) -> torch.Tensor:
        a, b = matrices[f"{module}.lora_A.weight"], matrices[f"{module}.lora_B.weight"]
        return alpha / len(a) * b @ a

    adapted = {name.partition(".lora_")[0] for name in matrices}
    found = frozen | {f"{m}.weight": frozen[f"{m}.weight"] + product(m) for m in adapted if ".experts." not in m}
    for layer in {m.partition(".experts.")[0] + ".experts" for m in adapted if ".experts." in m}:
        each = range(len(frozen[f"{layer}.down_proj"]))
        if f"{layer}.0.gate_proj" in adapted:
            gate_up = [torch.cat([product(f"{layer}.{e}.gate_proj"), product(f"{layer}.{e}.up_proj")]) for e in each]
            found[f"{layer}.gate_up_proj"] = frozen[f"{layer}.gate_up_proj"] + torch.stack(gate_up)
        down = [product(f"{layer}.{e}.down_proj") for e in each]
        found[f"{layer}.down_proj"] = frozen[f"{layer}.down_proj"] + torch.stack(down)
    return found


def float64_gradients(
    base: Path, policy: Policy, groups: dict[str, list[TrainRollout]], config: LearnerConfig
) -> dict[str, torch.Tensor]:
    """By transformers' own layers, one rollout and one expert at a time."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, experts_implementation="eager")
    views = policy.lora.views(policy.lora.master)
    matrices = {name: view.detach().double().requires_grad_() for name, view in views.items()}
    weights = whole_weights({n: p.detach() for n, p in model.named_parameters()}, matrices, config.lora_alpha)
    loss = torch.zeros((), dtype=torch.float64)
    for group in groups.values():
        rewards = np.array([float(r.correct) for r in group])
        for r, advantage in zip(group, rewards - rewards.mean(), strict=True):
            ids = torch.tensor([[*r.prompt_ids, *r.token_ids]])
            logits = torch.func.functional_call(model, weights, (ids,)).logits[0, len(r.prompt_ids) - 1 : -1]
            chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(r.token_ids)[:, None])[:, 0]
            loss = loss - ((chosen - torch.from_numpy(r.logprobs_T).double()).exp() * advantage).sum()
    return dict(zip(matrices, torch.autograd.grad(loss, list(matrices.values())), strict=True))


@pytest.mark.parametrize("merged", [False, True], ids=["beside", "merged"])
@pytest.mark.parametrize("targets", [*TARGETS, "down"])
def test_gradients_of_a_mixture_are_those_of_float64(mixture: Path, targets: str, merged: bool) -> None:
    config = moe_config(targets) if targets in TARGETS else replace(moe_config("experts"), target_modules=DOWN)
    policy = shifted(Policy(mixture, config, Execution(device="cpu", merged=merged)))
    groups = grouped(sampled_by(policy, random_rollouts(PROBLEMS, 4, seed=11), noise=0.3))
    Updater(policy, config, 8192).gradient(groups, Clock())
    ours = policy.lora.views(policy.lora.grad)
    theirs = float64_gradients(mixture, policy, groups, config)
    assert len(ours) == 4 * 2 * (4 + 8 * {"attention": 0, "down": 1}.get(targets, 3))
    for name, gradient in theirs.items():
        size = torch.linalg.vector_norm(gradient)
        # the learner's forward pass is float32
        assert size > 0 and torch.linalg.vector_norm(ours[name].double() - gradient) <= 2e-5 * size, name
