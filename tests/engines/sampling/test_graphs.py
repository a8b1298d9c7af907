"""Which batches have CUDA graphs, and what they need."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.learning.memory_plan import GIB, check_sampler_memory, linear_parameters
from tasks.engines.sampling.settings import check_parallel, graph_bytes, graph_sizes, on_cpu, on_gpu, step_tokens
from tests.hollow import hollow_weights


def test_the_largest_batch_always_has_one() -> None:
    assert graph_sizes(Hardware(max_num_seqs=20, graphs_up_to=20)) == [1, 2, 4, 8, 16, 20]
    for largest in (1, 3, 64, 128, 1000, 1024):
        assert graph_sizes(Hardware(max_num_seqs=largest, graphs_up_to=largest))[-1] == largest


def test_a_full_batch_has_one_of_its_own_and_room_for_prompts_beside_it() -> None:
    """100 rollouts decode by a graph of 100; while as many tokens of prompts are computed, by one of at most 512."""
    for at_once in (100, 512, 1024):
        hardware = Hardware(max_num_seqs=at_once)
        sizes = graph_sizes(hardware)
        assert at_once in sizes and sizes[-1] == step_tokens(hardware) >= 2 * at_once
    assert step_tokens(Hardware(max_num_seqs=100)) == 512


def test_capped_and_spaced() -> None:
    sizes = graph_sizes(Hardware(max_num_seqs=1024, graphs_up_to=512))
    assert sizes[-1] == 512
    assert all(b - a <= max(8, a / 4) for a, b in itertools.pairwise(sizes))


def test_no_step_is_larger_than_the_engine_computes() -> None:
    """vLLM captures none of those sizes: counted, their memory would be refused for nothing."""
    hardware = Hardware(max_num_seqs=64, graphs_up_to=4096)
    assert graph_sizes(hardware) == graph_sizes(Hardware(max_num_seqs=64))


def test_adapters_beside_the_weights_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 layers of 64 experts with rank 512: slots of 2·512·(8·(4·2·1024 + 64·3·2·1024 + 1024 + 64) + 2·(1000 + 1024)) bytes,
    3.1 GiB."""
    config = {
        "hidden_size": 1024,
        "num_attention_heads": 1,
        "head_dim": 1024,
        "num_hidden_layers": 8,
        "intermediate_size": 1024,
        "moe_intermediate_size": 1024,
        "num_experts": 64,
        "vocab_size": 1000,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    hollow_weights(tmp_path / "model.safetensors", 0)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (4 * GIB, 4 * GIB))
    monkeypatch.setattr("tasks.engines.sampling.settings.keep_compiled", lambda gpu: tmp_path)
    hardware = Hardware(memory_fraction=0.9, dtype="bfloat16", graphs_up_to=1)
    assert on_gpu(tmp_path, hardware, merges=False, lora_rank=0)["gpu_memory_utilization"] == pytest.approx(0.9)
    layer = 4 * 2 * 1024 + 64 * 3 * 2 * 1024 + 1024 + 64
    slots = 2 * 512 * (8 * layer + 2 * (1000 + 1024)) / GIB
    with pytest.raises(UserError, match=rf"{slots:.1f} of it adapters beside them.*a smaller lora_rank"):
        on_gpu(tmp_path, hardware, merges=False, lora_rank=512)


def test_graphs_beyond_memory_are_refused_in_a_sentence(tmp_path: Path) -> None:
    hollow_weights(tmp_path / "model.safetensors", 0)
    hardware = Hardware(max_num_seqs=1 << 16)
    with pytest.raises(UserError, match=r"CUDA graphs.*a smaller hardware\.graphs_up_to"):
        check_sampler_memory(tmp_path, 0.5, 1, 16 * GIB, 2, graphs=graph_bytes(hardware))
    share = check_sampler_memory(tmp_path, 0.5, 1, 16 * GIB, 2, kept=GIB, graphs=GIB)
    assert share == 7 * GIB


def test_weights_kept_for_merging_by_hand() -> None:
    """Qwen2.5-1.5B: 28 · (1536 · 1536 · 2 + 1536 · 256 · 2 + 3 · 1536 · 8960) = 1.31 B."""
    config = {
        "hidden_size": 1536,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
    }
    assert json.dumps(linear_parameters(config)) == "1310195712"


def test_a_cache_larger_than_the_memory_is_refused_before_the_engine_starts() -> None:
    with pytest.raises(UserError, match="kv_cache_mb is 1000000000 and"):
        on_cpu(Hardware(kv_cache_mb=1_000_000_000))


def test_heads_that_cannot_be_dealt_out_are_refused_before_the_engine_starts(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 6}))
    check_parallel(tmp_path, Hardware(tensor_parallel=3))
    with pytest.raises(UserError, match=r"tensor_parallel is 4, and .* has 6 attention heads"):
        check_parallel(tmp_path, Hardware(tensor_parallel=4))
