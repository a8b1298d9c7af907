"""Which batches have CUDA graphs, and what an engine is not started with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.model_checks import check_parallel
from tasks.engines.sampling.vllm import graph_sizes, on_cpu, step_tokens


def test_a_full_batch_has_one_of_its_own_and_room_for_prompts_beside_it() -> None:
    """100 rollouts decode by a graph of 100; while as many tokens of prompts are computed, by one of at most 512."""
    for at_once in (100, 512, 1024):
        hardware = Hardware(max_num_seqs=at_once)
        sizes = graph_sizes(hardware)
        assert at_once in sizes and sizes[-1] == step_tokens(hardware) >= 2 * at_once
    assert step_tokens(Hardware(max_num_seqs=100)) == 512


def test_a_cache_larger_than_the_memory_is_refused_before_the_engine_starts() -> None:
    with pytest.raises(UserError, match="kv_cache_mb is 1000000000 and"):
        on_cpu(Hardware(kv_cache_mb=1_000_000_000))


def test_heads_that_cannot_be_dealt_out_are_refused_before_the_engine_starts(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 6}))
    check_parallel(tmp_path, Hardware(tensor_parallel=3))
    with pytest.raises(UserError, match=r"tensor_parallel is 4, and .* has 6 attention heads"):
        check_parallel(tmp_path, Hardware(tensor_parallel=4))
