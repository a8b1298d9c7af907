"""What a GPU alone can show: log-probs kept by the sampler, adapters merged under CUDA graphs and a prefix cache."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import KVCache, ServedAdapter
from tasks.engines.hardware import Hardware
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.protocols import Completion, Decoding, Request
from tasks.engines.sampling import vllm as sampling
from tests.engines.conftest import shifted
from tests.engines.sampling.test_serving import learned_logprobs
from tests.gpu.conftest import apart
from tests.needs import lacks
from tests.tiny_model import DEMO, adapter, write_tiny_mixture

pytestmark = pytest.mark.gpu
MIXTURE_CONFIG = LearnerConfig(
    steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=16, lora_alpha=16
)
#: Of a mixture: what the learner's kernel for rollouts of several lengths takes.
WIDE = {"hidden_size": 256, "head_dim": 64, "moe_intermediate_size": 128, "num_experts": 8}
HARDWARE = Hardware(max_model_len=512, max_num_seqs=64, memory_fraction=0.1, dtype="bfloat16")


@pytest.fixture(scope="module")
def generator() -> Iterator[Any]:
    """With a cache of 40 blocks for 64 requests at once, most of them are pre-empted on their way."""
    patch = pytest.MonkeyPatch()
    where = sampling.on_gpu
    patch.setattr(sampling, "on_gpu", lambda *args: where(*args) | {"num_gpu_blocks_override": 40})
    made = sampling.VllmGenerator(DEMO, HARDWARE, 16)
    patch.undo()
    yield made
    made.close()


def asked(number: int, tokens: int = 96) -> list[Request]:
    return [Request(i, tuple(range(5, 25 + i % 30)), 100 + i, Decoding(max_tokens=tokens)) for i in range(number)]


def test_kept_logprobs_are_those_that_vllm_returns(generator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """160 requests over 64 slots, pre-empted and not: both ways in one run."""
    assert generator._keeps
    returned: dict[int, np.ndarray] = {}
    completion, params = generator._completion, sampling._sampling_params

    def note(request: Request, output: Any, logprobs_T: np.ndarray) -> Completion:
        returned[request.key] = sampling._returned(output)
        return completion(request, output, logprobs_T)

    def to_the_end(decoding: Decoding, seed: int, *, logprobs: bool) -> Any:
        made = params(decoding, seed, logprobs=True)
        made.ignore_eos = True
        return made

    released: list[int] = []
    monkeypatch.setattr(generator, "_completion", note)
    monkeypatch.setattr(sampling, "_sampling_params", to_the_end)
    scheduler = generator._engine.engine_core.engine_core.scheduler
    preempt = scheduler._preempt_request
    monkeypatch.setattr(scheduler, "_preempt_request", lambda *a, **k: (released.append(1), preempt(*a, **k))[1])
    done = list(generator.generate(asked(160), None))
    assert len(done) == 160 and len(released) > 20
    for c in done:
        assert np.abs(c.logprobs_T - returned[c.key]).max() <= 1e-6


def test_other_weights_are_served_at_once_and_the_base_comes_back_to_the_bit(generator: Any, tmp_path: Path) -> None:
    """Prompts are in the prefix cache, decoding is by CUDA graph: both must see what was merged."""
    before = sorted(generator.generate(asked(32), None), key=lambda c: c.key)
    folder = adapter(tmp_path / "adapter", rank=16)
    scale_up(folder)
    other = sorted(generator.generate(asked(32), ServedAdapter("a", folder)), key=lambda c: c.key)
    again = sorted(generator.generate(asked(32), None), key=lambda c: c.key)
    # of some prompts the first token is nearly certain under either
    moved = [abs(a.logprobs_T[0] - b.logprobs_T[0]) > 1e-3 for a, b in zip(before, other, strict=True)]
    assert sum(moved) > 24
    exact = [np.abs(a.logprobs_T[0] - b.logprobs_T[0]) < 1e-2 for a, b in zip(before, again, strict=True)]
    assert all(exact)
    from vllm.model_executor.layers.linear import LinearBase

    worker = generator._engine.engine_core.engine_core.model_executor.driver_worker.worker
    for name, module in worker.model_runner.get_model().named_modules():
        if isinstance(module, LinearBase):
            assert bool((module.weight == worker._base[name]).all())


def test_a_mixture_s_experts_are_merged_and_the_base_comes_back_to_the_bit(tmp_path: Path) -> None:
    """What is sampled is what the learner computes with the adapter beside the weights, up to their rounding."""
    base = write_tiny_mixture(tmp_path / "base", **WIDE)
    policy = shifted(Policy(base, MIXTURE_CONFIG, Execution()), size=0.02)
    policy.lora.hand_over(tmp_path / "flat")
    served = [None, ServedAdapter("a", tmp_path / "flat"), None]
    found = apart(sampled, base, replace(HARDWARE, max_model_len=256), MIXTURE_CONFIG.lora_rank, served)
    assert found.adapters == "merged" and found.keeps
    before, other, again = found.done
    for one, two in zip(before, again, strict=True):
        assert one.token_ids == two.token_ids and np.array_equal(one.logprobs_T, two.logprobs_T)
    assert distance(policy, other) < 0.05
    assert distance(policy, before) > 3 * distance(policy, other)
    policy.lora.master.zero_()
    policy.lora.refresh()
    assert distance(policy, before) < 0.05


@dataclass
class Sampled:
    """What an engine says of itself, the tokens that its cache holds, and what it sampled with each adapter."""

    adapters: str
    keeps: bool
    serving: str
    tokens: int
    done: list[list[Completion]]


def sampled(
    base: Path, hardware: Hardware, rank: int, served: list[ServedAdapter | None], kv_cache: KVCache = "full"
) -> Sampled:
    made = sampling.VllmGenerator(base, hardware, rank, kv_cache)
    try:
        cache = made._engine.vllm_config.cache_config
        done = [sorted(made.generate(asked(16, 24), one), key=lambda c: c.key) for one in served]
        tokens = (cache.num_gpu_blocks or 0) * cache.block_size
        return Sampled(made.adapters, made._keeps, made.serving, tokens, done)
    finally:
        made.close()


def distance(policy: Policy, done: list[Completion]) -> float:
    """Mean distance of the sampler's log-probs from the learner's."""
    pairs = zip(asked(len(done), 24), done, strict=True)
    learned = ((learned_logprobs(policy, r.prompt_ids, c.token_ids), c.logprobs_T) for r, c in pairs)
    return float(np.abs(np.concatenate([ours - theirs for ours, theirs in learned])).mean())


def scale_up(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "adapter_model.safetensors")
    save_file({n: t * (1000 if "lora_B" in n else 1) for n, t in tensors.items()}, folder / "adapter_model.safetensors")


# Keys and values in fp8 on a GPU: twice the tokens, and how far the policy is from the learner's.


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


# Tokens and their log-probs by this project's kernels.


@pytest.mark.parametrize("rows", [1, 7, 128, 1024])
@pytest.mark.parametrize("vocabulary", [31, 8192, 8193, 151_936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_of_drawn_tokens_are_float64_s(rows: int, vocabulary: int, dtype: torch.dtype) -> None:
    from tasks.engines.kernels import sample_tokens

    draw = torch.Generator("cuda").manual_seed(rows + vocabulary)
    logits = (torch.randn(rows, vocabulary + 5, generator=draw, device="cuda") * 6 - 200).to(dtype)[:, :vocabulary]
    # most tokens may not be sampled, whole blocks among them
    logits[:, : vocabulary // 2] = float("-inf")
    slots, table = torch.arange(rows, device="cuda"), torch.zeros(rows + 1, 3, device="cuda")
    tokens = sample_tokens(logits, slots, slots * 7, torch.full_like(slots, 2), table)
    assert int(tokens.min()) >= vocabulary // 2
    exact = logits.double().log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    # as near as float32 can say a number of this size
    assert ((table[:rows, 2] - exact).abs() <= 2e-6 * exact.abs().clamp(min=1)).all()


def test_tokens_are_drawn_by_softmax_and_their_logprobs_are_its_logarithm() -> None:
    """A vocabulary of 152,000 with excluded tokens and an excluded block: 64,000 draws by chi-square."""
    from tasks.engines.kernels import sample_tokens

    torch.manual_seed(0)
    logits = torch.randn(1, 151_936, device="cuda") * 3
    logits[0, ::7] = float("-inf")
    logits[0, 1024:2048] = float("-inf")
    rows, slots = logits.repeat(128, 1), torch.randperm(128, device="cuda").int()
    seeds, table = torch.randint(-(2**62), 2**62, (128,), device="cuda"), torch.zeros(129, 500, device="cuda")
    drawn = torch.stack([sample_tokens(rows, slots, seeds, torch.full_like(slots, at), table) for at in range(500)])
    logprobs = torch.log_softmax(logits[0], 0)
    assert (table[slots.long()].T - logprobs[drawn]).abs().max() < 1e-5
    counts, expected = torch.bincount(drawn.flatten(), minlength=151_936), logprobs.exp() * drawn.numel()
    assert int(counts[expected == 0].sum()) == 0
    often = expected > 5
    chi2 = float(((counts - expected) ** 2 / expected)[often].sum())
    assert abs(chi2 - int(often.sum())) < 4 * (2 * int(often.sum())) ** 0.5
