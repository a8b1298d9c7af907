"""An engine that two GPUs share: what it samples is what the learner computes on one."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tasks.domain.policies import ServedAdapter
from tasks.engines.learning.policy import Execution, Policy
from tests.engines.conftest import shifted
from tests.gpu.conftest import apart
from tests.gpu.test_sampling_gpu import HARDWARE, MIXTURE_CONFIG, WIDE, distance, sampled
from tests.needs import lacks
from tests.tiny_model import write_tiny_mixture

pytestmark = pytest.mark.gpu
TWO = replace(HARDWARE, max_model_len=256, tensor_parallel=2)


@pytest.mark.parametrize("rank", [0, MIXTURE_CONFIG.lora_rank])
def test_what_two_gpus_sample_is_what_the_learner_computes(tmp_path: Path, rank: int) -> None:
    """rank: of adapters, which are served beside the weights; 0: none are."""
    if torch.cuda.device_count() < 2:
        lacks("gpu", "no two NVIDIA GPUs")
    base = write_tiny_mixture(tmp_path / "base", **WIDE)
    policy = shifted(Policy(base, MIXTURE_CONFIG, Execution()), size=0.02)
    policy.lora.export(tmp_path / "adapter", base, torch.bfloat16)
    found = apart(sampled, base, TWO, rank, [None, ServedAdapter("a", tmp_path / "adapter") if rank else None])
    before, other = found.done
    assert found.adapters == ("unmerged" if rank else "none")
    if rank:
        assert distance(policy, other) < 0.05
        assert distance(policy, before) > 3 * distance(policy, other)
    policy.lora.master.zero_()
    policy.lora.refresh()
    assert distance(policy, before) < 0.05
