"""Experts with a rank of their own: each matrix of that rank and scaled by it, wherever the adapter goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.engines.adapter_files import adapter_files, read_served
from tasks.engines.learning.merging import merge_into
from tasks.engines.learning.policy import Execution, Policy
from tests.engines.conftest import shifted
from tests.made_elsewhere import adapter
from tests.tiny_model import write_tiny_mixture

CONFIG = LearnerConfig(
    steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=32, lora_alpha=32, expert_rank=8
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_mixture(tmp_path_factory.mktemp("mixture"))


@pytest.fixture(scope="module")
def policy(base: Path) -> Policy:
    return shifted(Policy(base, CONFIG, Execution(device="cpu")))


@pytest.fixture(scope="module")
def written(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter")
    policy.lora.export(folder, policy.base, torch.float32)
    return folder


def test_served_in_either_format_each_matrix_has_its_scale(policy: Policy, written: Path, tmp_path: Path) -> None:
    policy.lora.hand_over(tmp_path)
    for folder in (written, tmp_path):
        products = read_served(folder, "cpu")
        assert {products.scale(name) for name in products.pairs if ".experts." in name} == {4.0}
        assert {products.scale(name) for name in products.pairs if ".self_attn." in name} == {1.0}
    name = "model.layers.1.mlp.experts.up_proj"
    a, b = products.pairs[name]
    weight, out = torch.zeros(len(a), b.shape[1], a.shape[2]), torch.empty(len(a), b.shape[1], a.shape[2])
    merge_into(out, weight, products, name)
    assert torch.allclose(out[3], 4.0 * b[3] @ a[3], atol=1e-6)


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
    with pytest.raises(UserError, match=r"has expert_rank 8 and not 32, as this training wants"):
        other.lora.load(written, policy.base)


def test_an_adapter_made_elsewhere_says_both_ranks(written: Path, tmp_path: Path) -> None:
    found = adapter_files(written)
    assert (found.rank, found.expert_rank, found.largest_rank) == (32, 8, 32)
    found.check_recipe(CONFIG)
    with pytest.raises(UserError, match=r"has lora_rank 32 and not 16; expert_rank 8 and not 16, as .*: change the"):
        found.check_recipe(replace(CONFIG, lora_rank=16, expert_rank=None))
    several = adapter(tmp_path / "several", rank=4, ranks={"q_proj": 2})
    with pytest.raises(UserError, match="only one rank of linear layers and one of experts are served"):
        adapter_files(several)
