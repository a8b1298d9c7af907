"""Tiny random models, small enough to be compared number by number."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tasks.domain.grpo.steps import TrainRollout
from tests.tiny_model import write_tiny_mixture, write_tiny_model

if TYPE_CHECKING:
    from tasks.engines.learning.policy import Policy

VOCABULARY = 64


def tiny_config(**overrides: Any) -> Any:
    from transformers import Qwen3Config

    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "tie_word_embeddings": True,
        "max_position_embeddings": 256,
    }
    return Qwen3Config(**(shape | overrides))


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of 2 layers and 64 tokens."""
    import torch
    from transformers import Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("tiny") / "base"
    torch.manual_seed(0)
    Qwen3ForCausalLM(tiny_config(initializer_range=0.2)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a tokenizer."""
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def tiny_mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_mixture(tmp_path_factory.mktemp("mixture"))


def random_rollouts(
    problem_ids: tuple[str, ...], group_size: int, seed: int, *, behaviour: float = -4.0
) -> list[TrainRollout]:
    """Rollouts of random tokens, a function of problem and seed; each group holds right and wrong ones."""
    rollouts = []
    for problem_id in problem_ids:
        rng = np.random.default_rng([seed, *problem_id.encode()])
        prompt = rng.integers(0, VOCABULARY, int(rng.integers(3, 12))).tolist()
        for rollout in range(group_size):
            tokens = rng.integers(0, VOCABULARY, int(rng.integers(1, 15))).tolist()
            noise = rng.normal(behaviour, 0.1, len(tokens)).astype(np.float32)
            rollouts.append(
                TrainRollout(problem_id, "s", rollout, prompt, tokens, noise, rollout % 2 == 0, True, False)
            )
    return rollouts


def shifted(policy: "Policy", seed: int = 1, size: float = 0.05) -> "Policy":
    """The policy with an adapter that is not zero, so that the gradient of A is not zero either."""
    import torch

    master = policy.lora.master
    with torch.no_grad():
        noise = torch.randn(master.shape, generator=torch.Generator().manual_seed(seed)) * size
        master.add_(noise.to(master.device))
    policy.lora.refresh()
    return policy
