"""Data parallelism of the learner: every process takes a share of a step's packs, and gradients are summed.

Processes are started by `torchrun`; without it there is one. The first process samples and writes; the others learn
its rollouts from it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def join(device_type: str) -> None:
    """Enter the process group that torchrun announces, if it does and nobody has yet."""
    import torch
    import torch.distributed as dist

    if "RANK" in os.environ and not dist.is_initialized():
        if device_type == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if device_type == "cuda" else "gloo")


def rank_and_world() -> tuple[int, int]:
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def total(tensor: Tensor) -> Tensor:
    """The sum over processes, in place."""
    import torch.distributed as dist

    if rank_and_world()[1] > 1:
        dist.all_reduce(tensor)
    return tensor


def largest(tensor: Tensor) -> Tensor:
    """The elementwise maximum over processes, in place."""
    import torch.distributed as dist

    if rank_and_world()[1] > 1:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor


def from_first(value: T | None) -> T:
    """What the first process has; the others pass None."""
    import torch.distributed as dist

    box = [value]
    if rank_and_world()[1] > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]  # type: ignore[return-value]


def wait_for_all() -> None:
    import torch.distributed as dist

    if rank_and_world()[1] > 1:
        dist.barrier()
