"""Keys and values in fp8 on a GPU: twice the tokens, and how far the policy is from the learner's."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from tasks.domain.policies import KVCache
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.protocols import Completion
from tasks.engines.sampling.vllm import VllmGenerator
from tests.gpu.test_sampling_gpu import HARDWARE, MIXTURE_CONFIG, WIDE, asked, distance
from tests.needs import lacks
from tests.tiny_model import write_tiny_mixture

pytestmark = pytest.mark.gpu


def test_fp8_holds_twice_the_tokens_of_nearly_the_same_policy(tmp_path: Path) -> None:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9):
        lacks("gpu", "no NVIDIA GPU with fp8")
    base = write_tiny_mixture(tmp_path / "base", **WIDE)
    policy = Policy(base, MIXTURE_CONFIG, Execution())
    (tokens, whole, _), (more, rounded, said) = (_apart_from_this(base, kv) for kv in ("full", "fp8"))
    print(f"mean distance from the learner's log-probs: {distance(policy, whole):.5f}, {distance(policy, rounded):.5f}")
    assert said.endswith("keys and values in fp8")
    assert 1.9 < more / tokens < 2.1
    assert distance(policy, whole) < distance(policy, rounded) < 0.1


def _apart_from_this(base: Path, kv_cache: KVCache) -> tuple[int, list[Completion], str]:
    """In a process of its own: vLLM settles once a process whether there are experts."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(_sampled, base, kv_cache).result()


def _sampled(base: Path, kv_cache: KVCache) -> tuple[int, list[Completion], str]:
    """Tokens that the cache holds, what is sampled with it, and what the manifest says of it."""
    made = VllmGenerator(base, replace(HARDWARE, max_model_len=256), 0, kv_cache)
    try:
        cache = made._llm.llm_engine.vllm_config.cache_config
        done = sorted(made.generate(asked(16, 24), None), key=lambda c: c.key)
        return (cache.num_gpu_blocks or 0) * cache.block_size, done, made.serving
    finally:
        made.close()
