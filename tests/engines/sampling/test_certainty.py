"""Self-certainty by the definition: the divergence of the uniform distribution from each token's, and its mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engines.hardware import Hardware
from tasks.engines.sampling.transformers import TransformersGenerator
from tests.tiny_model import write_tiny_model

SAMPLED = [([5, 6, 7], [8, 9]), ([10, 11], [12, 13, 14, 15]), ([20], [21])]


def test_a_self_certainty_is_the_mean_divergence_from_the_uniform_distribution(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    write_tiny_model(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    found = TransformersGenerator(tmp_path, Hardware()).certainties(SAMPLED, None)
    for (prompt, completion), certainty in zip(SAMPLED, found, strict=True):
        divergences = []
        for place in range(len(completion)):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + completion[:place]])).logits[0, -1]
            log_p = torch.log_softmax(logits, -1)
            uniform = torch.full_like(log_p, 1 / len(log_p))
            divergences.append(float(torch.nn.functional.kl_div(log_p, uniform, reduction="sum")))
        assert certainty == pytest.approx(sum(divergences) / len(divergences), rel=1e-4) and certainty > 0
    assert len(set(found)) == len(SAMPLED)
