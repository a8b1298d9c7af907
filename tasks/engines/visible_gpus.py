"""The GPUs that a process sees, and those that a process it starts shall see."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

_VARIABLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_NAME = re.compile(r"\d+$|GPU-|MIG-")


def _named() -> list[str] | None:
    """Those that the variable names, up to the first that is no GPU's name, as the driver reads it; null where it is
    not set."""
    seen = os.environ.get(_VARIABLE)
    return None if seen is None else [*takewhile(_NAME.match, map(str.strip, seen.split(",")))]


def visible_gpus() -> list[str]:
    """As the driver names them, in the order in which torch numbers them."""
    import torch

    named = _named()
    return [str(i) for i in range(torch.cuda.device_count())] if named is None else named


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
    named = _named()
    return len([*Path("/dev").glob("nvidia[0-9]*")]) if named is None else len(named)


def gpu_bytes() -> int:
    """Memory of the smallest GPU that this process sees, as the driver's own tool says; 0 without one, where it does
    not say, and of a part of a GPU, which has less than the tool says."""
    if not num_gpus():
        return 0
    seen = _seen(_asked("mig.mode.current"))
    if not all(memory.isdigit() and parts != "Enabled" for *_, memory, parts in seen):
        return 0
    return min((int(row[2]) << 20 for row in seen), default=0)


def compute_capability() -> tuple[int, int] | None:
    """Of the least able GPU that this process sees, as the driver's own tool says; null where it does not say."""
    found = [one[-1].partition(".") for one in _seen(_asked("compute_cap"))]
    if not all(major.isdigit() and minor.isdigit() for major, _, minor in found):
        return None
    return min(((int(major), int(minor)) for major, _, minor in found), default=None)


def _asked(field: str) -> list[list[str]]:
    """(index, uuid, memory in MiB, this) of each GPU; none where the driver's tool does not answer."""
    ask = ["nvidia-smi", f"--query-gpu=index,uuid,memory.total,{field}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    return [row for row in rows if len(row) == 4]


def _seen(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows (index, uuid, memory, another) of the GPUs that this process sees. The driver numbers GPUs by
    speed unless CUDA_DEVICE_ORDER says otherwise; with GPUs of several sizes no row is returned then."""
    named = _named()
    if named is None:
        return rows
    if any(name.isdigit() for name in named) and os.environ.get(_ORDER) != "PCI_BUS_ID":
        return rows if len({memory for *_, memory, _ in rows}) == 1 else []
    return [row for row in rows if any(row[0] == name or row[1].startswith(name) for name in named)]
