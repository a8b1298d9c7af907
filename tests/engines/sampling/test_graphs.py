"""Which batches have CUDA graphs, and what an engine is not started with."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.vllm import check_parallel, graph_sizes, on_cpu, step_tokens


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
    """vLLM captures none of those sizes."""
    hardware = Hardware(max_num_seqs=64, graphs_up_to=4096)
    assert graph_sizes(hardware) == graph_sizes(Hardware(max_num_seqs=64))


def test_a_cache_larger_than_the_memory_is_refused_before_the_engine_starts() -> None:
    with pytest.raises(UserError, match="kv_cache_mb is 1000000000 and"):
        on_cpu(Hardware(kv_cache_mb=1_000_000_000))


def test_heads_that_cannot_be_dealt_out_are_refused_before_the_engine_starts(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 6}))
    check_parallel(tmp_path, Hardware(tensor_parallel=3))
    with pytest.raises(UserError, match=r"tensor_parallel is 4, and .* has 6 attention heads"):
        check_parallel(tmp_path, Hardware(tensor_parallel=4))
