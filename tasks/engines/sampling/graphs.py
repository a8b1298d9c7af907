"""Which batches decode by a CUDA graph. vLLM pads a batch to the next captured size; above the largest it runs without.

Its own default ends at 512, whatever `max_num_seqs` is: 1,024 rollouts at once then decode four times slower a token.
"""

from __future__ import annotations

from tasks.engines.hardware import Hardware

#: (largest batch, step between sizes): little padding, and not a size more than that, for each takes time to capture.
_STEPS = ((64, 8), (256, 16), (512, 32), (1 << 30, 64))
#: Device memory of one captured size, measured with 1.5B parameters on an H200: 0.61 GiB for 39.
GRAPH_BYTES = 16 << 20


def graph_sizes(hardware: Hardware) -> list[int]:
    """Batch sizes that are captured, ascending, up to what the hardware asks for, that one always."""
    largest = hardware.max_num_seqs if hardware.graphs_up_to is None else hardware.graphs_up_to
    sizes, size = {1, 2, 4, largest}, 0
    while (size := size + next(step for end, step in _STEPS if size < end)) < largest:
        sizes.add(size)
    return sorted(s for s in sizes if 0 < s <= largest)


def graph_bytes(hardware: Hardware) -> int:
    return GRAPH_BYTES * len(graph_sizes(hardware))
