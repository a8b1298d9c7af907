"""What the learner exports is what samplers load: plain PEFT, the same numbers in peft, in vLLM and in the learner."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tasks.domain.grpo.learner_config import ATTENTION, LearnerConfig
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack
from tasks.domain.policies import ServedAdapter
from tasks.engines.hardware import Hardware
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.protocols import Completion, Decoding, Generator, Request
from tests.engines.conftest import shifted
from tests.tiny_model import DEMO, write_tiny_mixture

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=8, lora_alpha=8)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return shifted(Policy(DEMO, CONFIG, Execution(device="cpu")))


def learned_logprobs(policy: Policy, prompt: tuple[int, ...], token_ids: list[int]) -> np.ndarray:
    trajectory = Trajectory(0, token_ids, np.zeros(len(token_ids), np.float32), 1.0)
    with torch.no_grad():
        return policy.logprobs(build_pack([PromptGroup(prompt, [trajectory])]))[0].cpu().numpy()


def generate(generator: Generator, adapter: ServedAdapter | None) -> list[Completion]:
    decoding = Decoding(max_tokens=24)
    requests = [Request(i, tuple(range(5, 5 + 20 + i)), 100 + i, decoding) for i in range(4)]
    return sorted(generator.generate(requests, adapter), key=lambda c: c.key)


@pytest.fixture(scope="module", params=["merged", "unmerged"])
def generator(request: pytest.FixtureRequest) -> Iterator[Generator]:
    from tasks.engines.sampling.vllm import VllmGenerator

    made = VllmGenerator(DEMO, Hardware(kv_cache_mb=64, adapters=request.param), CONFIG.lora_rank)
    yield made
    made.close()


class TestVllm:
    def test_behaviour_logprobs_are_the_learners(self, generator: Generator, policy: Policy, tmp_path: Path) -> None:
        policy.lora.export(tmp_path, DEMO, torch.float32)
        for i, completion in enumerate(generate(generator, ServedAdapter("agree", tmp_path))):
            learned = learned_logprobs(policy, tuple(range(5, 25 + i)), completion.token_ids)
            assert np.abs(learned - completion.logprobs_T).max() < 1e-4

    def test_other_files_are_other_weights_whatever_their_name_with_prefix_caching_on(
        self, generator: Generator, policy: Policy, tmp_path: Path
    ) -> None:
        """Two arms' adapters had one name, and the second arm was sampled with the first one's."""
        policy.lora.export(tmp_path / "one", DEMO, torch.float32)
        before = generate(generator, ServedAdapter("one", tmp_path / "one"))
        again = generate(generator, ServedAdapter("one", tmp_path / "one"))
        other = shifted(Policy(DEMO, CONFIG, Execution(device="cpu")), seed=2)
        other.lora.export(tmp_path / "two", DEMO, torch.float32)
        after = generate(generator, ServedAdapter("one", tmp_path / "two"))
        assert [c.token_ids for c in before] == [c.token_ids for c in again]
        for i, completion in enumerate(after):
            learned = learned_logprobs(other, tuple(range(5, 25 + i)), completion.token_ids)
            assert np.abs(learned - completion.logprobs_T).max() < 1e-4
        assert any(abs(a.logprobs_T[0] - b.logprobs_T[0]) > 1e-3 for a, b in zip(before, after, strict=True))


def test_a_gpu_starts_rollouts_in_bursts(generator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_cpu", False)
    monkeypatch.setattr(generator, "_max_num_seqs", 8)
    monkeypatch.setattr(generator, "_burst", 3)
    engine, at_once, started = generator._engine, [], []
    step, add = engine.step, engine.add_request
    monkeypatch.setattr(engine, "step", lambda: at_once.append(len(started)) or step())
    monkeypatch.setattr(engine, "add_request", lambda name, *a, **k: started.append(name) or add(name, *a, **k))
    requests = [Request(i, tuple(range(5, 25)), i, Decoding(max_tokens=4 + i % 5)) for i in range(21)]
    done = list(generator.generate(requests, None))
    assert sorted(c.key for c in done) == list(range(21))
    grown = [b - a for a, b in zip([0, *at_once], at_once, strict=False) if b > a]
    assert grown[0] == 8 and all(n >= 3 for n in grown[1:-1]) and sum(grown) == 21


TARGETS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ATTENTION},
    "experts": {},
    "narrow experts": {"lora_rank": 8, "expert_rank": 4},
}


def moe_config(targets: str, steps: int = 1) -> LearnerConfig:
    config = LearnerConfig(steps=steps, groups_per_step=1, group_size=4, learning_rate=1e-2, lora_rank=4, lora_alpha=8)
    return replace(config, **TARGETS[targets])


@pytest.mark.parametrize("targets", TARGETS)
def test_a_mixture_of_experts_trains_and_is_served(targets: str, tmp_path: Path) -> None:
    """By the transformers engine: vLLM's LoRA kernels for experts need a GPU, whatever the adapter targets."""
    from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
    from tasks.engines.learning.learner import train
    from tasks.engines.sampling.transformers import TransformersGenerator

    base = write_tiny_mixture(tmp_path / "moe")
    generator = TransformersGenerator(base, Hardware(max_num_seqs=8))
    first: list[float] = []

    def sample(plan: StepPlan) -> list[TrainRollout]:
        if not plan.problem_ids:
            return []
        requests = [Request(i, tuple(range(5, 25)), 100 + i, Decoding(max_tokens=24)) for i in range(4)]
        completions = sorted(generator.generate(requests, plan.adapter), key=lambda c: c.key)
        first.append(float(completions[0].logprobs_T[0]))
        return [
            TrainRollout("p", "s", c.key, range(5, 25), c.token_ids, c.logprobs_T, c.key < 2, True, False)
            for c in completions
        ]

    result = train(
        base=base,
        problems=[PromptProblem("p", "s")],
        config=moe_config(targets, 3),
        execution=Execution(device="cpu"),
        workdir=tmp_path / "work",
        sample=sample,
    )
    assert len(set(first)) == 3
    for row in result.steps:
        assert row["grad_norm"] > 0
        assert row["ratio_max"] < 1.001 and row["kl_behaviour"] < 1e-6
    moved = load_file(result.kept_adapters[-1] / "adapter_model.safetensors")
    b = {name for name, matrix in moved.items() if "lora_B" in name and matrix.any()}
    assert any("self_attn" in name for name in b)
    assert any(".experts.0." in name for name in b) == (targets != "attention")
