"""The GPUs that a process sees, and those that a process it starts shall see."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """As the driver names them, in the order in which torch numbers them."""
    import torch

    seen = os.environ.get(_VARIABLE)
    return seen.split(",") if seen else [str(i) for i in range(torch.cuda.device_count())]


@contextmanager
def children_see(gpus: Sequence[str]) -> Iterator[None]:
    """What is started meanwhile sees these GPUs alone; none of them named: all that this process sees."""
    was = os.environ.get(_VARIABLE)
    if gpus:
        os.environ[_VARIABLE] = ",".join(gpus)
    try:
        yield
    finally:
        if was is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = was


def num_gpus() -> int:
    """That this process sees, by the driver's device files: no library is loaded for it."""
    seen = os.environ.get(_VARIABLE)
    return (
        len([gpu for gpu in seen.split(",") if gpu]) if seen is not None else len([*Path("/dev").glob("nvidia[0-9]*")])
    )


def gpu_bytes() -> int:
    """Memory of the smallest GPU that this process sees, as the driver's own tool says; 0 without one."""
    if not num_gpus():
        return 0
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return min((int(line) << 20 for line in said.split() if line.isdigit()), default=0)
