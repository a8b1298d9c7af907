"""A mixture of experts by vLLM on a CPU: sampled as transformers reads it, and refused with a hole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Decoding, Request
from tests.tiny_model import write_tiny_mixture


@pytest.mark.slow
def test_vllm_samples_a_mixture_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newer model runner, which a GPU is asked for, has no kernels there and was a traceback."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    from transformers import AutoModelForCausalLM

    from tasks.engines.sampling.vllm import VllmGenerator

    folder = write_tiny_mixture(tmp_path / "moe")
    made = VllmGenerator(folder, Hardware(kv_cache_mb=64, max_model_len=256), 0)
    requests = [Request(i, tuple(range(5, 15 + i)), i, Decoding(max_tokens=12)) for i in range(4)]
    completions = sorted(made.generate(requests, None), key=lambda c: c.key)
    made.close()
    model = AutoModelForCausalLM.from_pretrained(folder)
    for request, completion in zip(requests, completions, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float().log_softmax(-1)
        known = logprobs.gather(1, ids[0, len(request.prompt_ids) :, None]).squeeze(1).numpy()
        assert len(completion.token_ids) > 0
        assert np.abs(known - completion.logprobs_T).max() < 1e-4
