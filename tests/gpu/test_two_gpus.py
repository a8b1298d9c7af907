"""An engine that two GPUs share: what it samples is what the learner computes on one."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from tasks.domain.policies import ServedAdapter
from tasks.engines.hardware import Hardware
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.protocols import Completion
from tasks.engines.sampling.vllm import VllmGenerator
from tests.gpu.test_sampling_gpu import HARDWARE, MIXTURE_CONFIG, WIDE, asked, distance
from tests.needs import lacks
from tests.tiny_model import write_tiny_mixture

pytestmark = pytest.mark.gpu
TWO = replace(HARDWARE, max_model_len=256, tensor_parallel=2)


@pytest.fixture(scope="module", autouse=True)
def gpus() -> None:
    if torch.cuda.device_count() < 2:
        lacks("gpu", "no two NVIDIA GPUs")


@pytest.mark.parametrize("rank", [0, MIXTURE_CONFIG.lora_rank])
def test_what_two_gpus_sample_is_what_the_learner_computes(tmp_path: Path, rank: int) -> None:
    """rank: of adapters, which are served beside the weights; 0: none are."""
    base = write_tiny_mixture(tmp_path / "base", **WIDE)
    policy = Policy(base, MIXTURE_CONFIG, Execution())
    with torch.no_grad():
        policy.lora.master.add_(torch.randn_like(policy.lora.master) * 0.02)
    policy.lora.refresh()
    policy.lora.export(tmp_path / "adapter", base, torch.bfloat16)
    adapter = ServedAdapter("a", tmp_path / "adapter") if rank else None
    (adapters, before), (_, other) = _apart_from_this(base, TWO, rank, [None, adapter])
    assert adapters == ("unmerged" if rank else "none")
    if rank:
        assert distance(policy, other) < 0.05
        assert distance(policy, before) > 3 * distance(policy, other)
    policy.lora.master.zero_()
    policy.lora.refresh()
    assert distance(policy, before) < 0.05


def _apart_from_this(
    base: Path, hardware: Hardware, rank: int, served: list[ServedAdapter | None]
) -> list[tuple[str, list[Completion]]]:
    """In a process of its own: vLLM settles once a process whether there are experts."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(_sampled, base, hardware, rank, served).result()


def _sampled(
    base: Path, hardware: Hardware, rank: int, served: list[ServedAdapter | None]
) -> list[tuple[str, list[Completion]]]:
    made = VllmGenerator(base, hardware, rank)
    try:
        return [(made.adapters, sorted(made.generate(asked(16, 24), one), key=lambda c: c.key)) for one in served]
    finally:
        made.close()
