"""LoRA on the experts of a mixture: its files, and its gradients against float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, LearnerConfig
from tasks.engines.adapter_files import adapter_files
from tasks.engines.learning.policy import Execution, Policy
from tests.engines.conftest import shifted
from tests.tiny_model import adapter

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
