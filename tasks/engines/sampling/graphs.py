"""Which steps of the engine run by a CUDA graph. vLLM pads a step to the next captured size; above the largest it runs
without, and 1,024 rollouts at once then decode four times slower a token.

A step's size is its tokens: one a decoding rollout, and those of the prompts that are computed beside. So steps are
kept small (long prompts are computed in parts), and the graphs reach to the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.engines.hardware import Hardware

#: (largest batch, step between sizes): little padding, and not a size more than that, for each takes time to capture.
_STEPS = ((64, 8), (256, 16), (512, 32), (1 << 30, 64))
#: Device memory of one captured size, measured with 1.5B parameters on an H200: 0.61 GiB for 39.
GRAPH_BYTES = 16 << 20


def step_tokens(hardware: Hardware) -> int:
    """Tokens of a step at most: where every rollout decodes, as many again of prompts."""
    return max(512, 2 * hardware.max_num_seqs)


def graph_sizes(hardware: Hardware) -> list[int]:
    """Tokens of the steps that are captured, ascending, up to what the hardware asks for, that one always."""
    largest = min(step_tokens(hardware), hardware.graphs_up_to or step_tokens(hardware))
    sizes, size = {1, 2, 4, hardware.max_num_seqs, largest}, 0
    while (size := size + next(step for end, step in _STEPS if size < end)) < largest:
        sizes.add(size)
    return sorted(s for s in sizes if 0 < s <= largest)


def in_words(sizes: Sequence[int]) -> str:
    """Ascending sizes, as the log and `varband doctor` have them.

    >>> in_words([1, 2, 4, 8]), in_words([])
    ('steps of 1 to 8 tokens by CUDA graph, 4 sizes', 'no CUDA graphs')
    """
    return f"steps of 1 to {sizes[-1]} tokens by CUDA graph, {len(sizes)} sizes" if sizes else "no CUDA graphs"


def graph_bytes(hardware: Hardware) -> int:
    return GRAPH_BYTES * len(graph_sizes(hardware))
