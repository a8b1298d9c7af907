"""What sampling and training take, by config.json: counted by hand, and refused before anything is loaded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR, LearnerConfig
from tasks.domain.grpo.packing import Pack
from tasks.engines.hardware import Execution, Hardware, free_bytes
from tasks.engines.model_checks import (
    GIB,
    LOGPROB_CHUNK,
    UNBOUNDED,
    activation_bytes,
    check_training_memory,
    lora_parameters,
)
from tasks.engines.model_files import read_config
from tests.tiny_model import CONFIG, hollow_weights

LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=2, lora_alpha=2)
DENSE: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 3,
    "vocab_size": 10,
}
MIXTURE = DENSE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}


def test_the_estimate_counts_what_the_learner_allocates(tmp_path: Path) -> None:
    """Of a real mixture: the flat vector of all matrices is as long as the estimate says."""
    from tasks.engines.learning.policy import Policy
    from tests.engines.sampling.test_serving import moe_config
    from tests.tiny_model import write_tiny_mixture

    base = write_tiny_mixture(tmp_path / "moe")
    for targets in ("attention", "narrow experts"):
        config = moe_config(targets)
        policy = Policy(base, config, Execution(device="cpu"))
        expected = lora_parameters(read_config(base), config.lora_rank, config.target_modules, config.expert_rank)
        assert policy.lora.master.numel() == expected


def test_activations_by_hand() -> None:
    """Two bytes a value. Dense: 6·8 + 2·8 + 4·4 + 2·16 = 112 a layer. A mixture: 6·8 + 2·8 + 4·4 + 2·2·6 = 104, and
    2·4·(6 + 8) = 112 in passing."""
    assert activation_bytes(DENSE, ALL_LINEAR, 2, recompute=False) == 2 * 3 * 112
    assert activation_bytes(DENSE, ALL_LINEAR, 2, recompute=True) == 2 * (112 + 3 * 8)
    assert activation_bytes(MIXTURE, ALL_LINEAR, 2, recompute=False) == 2 * (3 * 104 + 112)
    assert activation_bytes(MIXTURE, ALL_LINEAR, 2, recompute=True) == 2 * (104 + 112 + 3 * 8)


#: (layers, rows of a pack) of Qwen3-30B-A3B's shape, LoRA r32 everywhere: GiB at the peak of benchmarks/learner_profile;
#: the last of benchmarks/grpo_speed, where a rollout was longer than packs are to be.
MEASURED = {(48, 8192): 116.6, (12, 8192): 31.7, (12, 16384): 38.4, (48, 12288 + 260): 131.4}


@pytest.mark.parametrize(("layers", "rows"), [(48, 8192), (12, 16384)])
def test_a_mixture_on_a_gpu_takes_what_is_planned(tmp_path: Path, layers: int, rows: int) -> None:
    """Within a tenth of what an H200 measured; layers are recomputed from nine tenths of what is free on."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    layer = 2048 * 128 * 2 * (32 + 4) + 128 * (3 * 2048 * 768 + 2048)
    hollow_weights(tmp_path / "model.safetensors", layers * layer + 2 * 151936 * 2048)
    learner, execution = replace(LEARNER, lora_rank=32), Execution(token_budget=rows)
    peak = MEASURED[layers, rows] * GIB / 0.9
    assert check_training_memory(tmp_path, learner, execution, 2, int(1.1 * peak)).kept_rows >= rows
    assert check_training_memory(tmp_path, learner, execution, 2, int(0.9 * peak)).kept_rows < rows


def test_recomputes_where_memory_asks_for_it_and_refuses_where_even_that_is_too_little(tmp_path: Path) -> None:
    """Of packs of at most 100 rows those that fit into nine tenths are kept."""
    fixed, kept, recomputed = small(tmp_path)
    whole = fixed + 100 * kept
    packs = Execution(token_budget=100)
    assert check_training_memory(tmp_path, LEARNER, packs, 2, free=2 * whole).kept_rows >= 100
    assert (
        check_training_memory(tmp_path, LEARNER, packs, 2, free=whole).kept_rows
        == int((0.9 * whole - fixed) // kept)
        < 100
    )
    for order, rows in (("on", 0), ("off", UNBOUNDED)):
        assert (
            check_training_memory(tmp_path, LEARNER, replace(packs, checkpointing=order), 2, free=2 * whole).kept_rows
            == rows
        )  # type: ignore[arg-type]
    little = fixed + 100 * recomputed
    with pytest.raises(
        UserError,
        match=r"training with packs of 100 tokens needs about \S+ MiB, but \S+ MiB are free; lower token_budget",
    ):
        check_training_memory(tmp_path, LEARNER, packs, 2, free=little)


def test_memory_that_only_pytorch_holds_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an 80 GB card after a training, in GiB: the driver had 3.5 free and PyTorch held 39 that nothing used. What a
    sampler that is still starting will take is not free."""
    driver = {"free": 3.5, "unused": 39.2}

    def empty_cache() -> None:
        driver.update(free=sum(driver.values()), unused=0.0)

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", empty_cache)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (int(driver["free"] * GIB), 80 * GIB))
    assert free_bytes(torch.device("cuda"), 0.58) / GIB == pytest.approx(42.7)
    driver["free"] = 79.0
    shared = Hardware(memory_fraction=0.42)
    assert free_bytes(torch.device("cuda"), shared.learner_share) / GIB == pytest.approx(0.58 * 80)
    apart = replace(shared, sampler_apart=True, engine_process="core")
    assert free_bytes(torch.device("cuda"), apart.learner_share) / GIB == pytest.approx(79.0)


def small(folder: Path) -> tuple[int, int, int]:
    """(bytes that are taken at any length, by a row, by a row whose layers are recomputed) of a model in `folder`."""
    (folder / "config.json").write_text(json.dumps(DENSE))
    hollow_weights(folder / "model.safetensors", 500)
    kept, recomputed = (activation_bytes(DENSE, ALL_LINEAR, 2, recompute=r) for r in (False, True))
    return 1000 + lora_parameters(DENSE, 2) * 20 + LOGPROB_CHUNK * 10 * 10, kept, recomputed


@pytest.mark.parametrize("short_of_memory", [0, 1, 9])
def test_the_longest_pack_is_tried_and_leaves_no_trace(
    tiny_base: Path, monkeypatch: pytest.MonkeyPatch, short_of_memory: int
) -> None:
    """Where it runs out of memory layers are recomputed, and where that is too little too, it is a sentence."""
    from tasks.engines.learning.policy import Policy

    policy = Policy(tiny_base, LEARNER, Execution(device="cpu", token_budget=48, longest=20))
    computed, weights, kept = policy.logprobs, policy.lora.master.clone(), policy.kept_rows
    tries: list[int] = []

    def out_of_memory(pack: Pack) -> tuple[torch.Tensor, torch.Tensor]:
        tries.append(len(pack.tokens_T))
        assert pack.positions_T.max() < 20
        if len(tries) <= short_of_memory:
            raise torch.OutOfMemoryError
        return computed(pack)

    monkeypatch.setattr(policy, "logprobs", out_of_memory)
    if short_of_memory == 9:
        with pytest.raises(
            UserError, match=r"ran out of memory with a pack of 48 tokens.*lower token_budget, max_model_len or"
        ):
            policy.try_longest(48)
    else:
        policy.try_longest(48)
    assert tries == [48] * (1 if short_of_memory == 0 else 2)
    assert policy.kept_rows == (kept if short_of_memory == 0 else 0)
    assert torch.equal(policy.lora.master, weights) and not policy.lora.grad.any()
