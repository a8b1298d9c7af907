"""Keys and values in fp8 on a GPU: twice the tokens, and how far the policy is from the learner's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tasks.engines.learning.policy import Execution, Policy
from tests.gpu.conftest import apart
from tests.gpu.test_sampling_gpu import HARDWARE, MIXTURE_CONFIG, WIDE, distance, sampled
from tests.needs import lacks
from tests.tiny_model import write_tiny_mixture

pytestmark = pytest.mark.gpu


def test_fp8_holds_twice_the_tokens_of_nearly_the_same_policy(tmp_path: Path) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        lacks("gpu", "no NVIDIA GPU with fp8")
    base = write_tiny_mixture(tmp_path / "base", **WIDE)
    policy, hardware = Policy(base, MIXTURE_CONFIG, Execution()), replace(HARDWARE, max_model_len=256)
    whole, rounded = (apart(sampled, base, hardware, 0, [None], kv) for kv in ("full", "fp8"))
    near, far = (distance(policy, one.done[0]) for one in (whole, rounded))
    print(f"mean distance from the learner's log-probs: {near:.5f}, {far:.5f}")
    assert rounded.serving.endswith("keys and values in fp8")
    assert 1.9 < rounded.tokens / whole.tokens < 2.1
    assert near < far < 0.1
