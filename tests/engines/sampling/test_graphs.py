"""Which batches have CUDA graphs, and what an engine is not started with."""

from __future__ import annotations

from tasks.engines.hardware import Hardware
from tasks.engines.sampling.vllm import graph_sizes, step_tokens


def test_a_full_batch_has_one_of_its_own_and_room_for_prompts_beside_it() -> None:
    """100 rollouts decode by a graph of 100; while as many tokens of prompts are computed, by one of at most 512."""
    for at_once in (100, 512, 1024):
        hardware = Hardware(max_num_seqs=at_once)
        sizes = graph_sizes(hardware)
        assert at_once in sizes and sizes[-1] == step_tokens(hardware) >= 2 * at_once
    assert step_tokens(Hardware(max_num_seqs=100)) == 512
