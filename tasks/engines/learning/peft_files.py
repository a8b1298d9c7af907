"""An adapter in PEFT's format from one flat vector, and back.

A safetensors file is a header and the matrices' bytes end to end, which is what the flat vector is: so it is written
as it lies, in pieces by several threads. One call a matrix took longer than all bytes of a mixture's 37,000.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.engines.adapter_files import ADAPTER, OF_BASE, PREFIX, WEIGHTS, adapter_files, ranks
from tasks.engines.model_files import weights_identity

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
_TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
#: Values that one thread writes at a time.
_PIECE = 1 << 24
_THREADS = 8


def write_peft(
    folder: Path, base: Path, flat: Tensor, dtype: torch.dtype, shapes: Shapes, alpha: int, targets: Sequence[str]
) -> None:
    """flat: of `shapes`, named as PEFT does without its prefix, on any device; written in `dtype`."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_matrices(folder / WEIGHTS, flat, dtype, shapes)
    of_base = {"name": base.name, "weights_identity": weights_identity(base)}
    (folder / OF_BASE).write_text(json.dumps(of_base, indent=2) + "\n")
    (folder / ADAPTER).write_text(json.dumps(_config(base, shapes, alpha, targets), indent=2, sort_keys=True) + "\n")


def _write_matrices(path: Path, flat: Tensor, dtype: torch.dtype, shapes: Shapes) -> None:
    """safetensors' format: the header's length, the header, the values."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        kind = _TYPES[str(dtype).removeprefix("torch.")]
        header[PREFIX + name] = {"dtype": kind, "shape": shape, "data_offsets": (start, end)}
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)
    with path.open("wb") as file:
        file.write(len(told).to_bytes(8, "little") + told)
        file.flush()
        begin = file.tell()

        def write(start: int) -> None:
            _write_at(file.fileno(), begin + start * dtype.itemsize, flat[start : start + _PIECE], dtype)

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(write, range(0, len(flat), _PIECE)))


def _write_at(file: int, place: int, piece: Tensor, dtype: torch.dtype) -> None:
    import torch

    if piece.is_cuda:
        # through pinned memory, which torch keeps for the next piece
        piece = torch.empty(len(piece), dtype=dtype, pin_memory=True).copy_(piece.to(dtype))
    of_bytes: Any = piece.to(dtype).contiguous().view(torch.uint8).numpy()
    left = memoryview(of_bytes)
    while left:
        done = os.pwrite(file, left, place)
        left, place = left[done:], place + done


def _config(base: Path, shapes: Shapes, alpha: int, targets: Sequence[str]) -> dict[str, object]:
    """Where experts have a rank of their own it is `r`, and the other layers are the exceptions from it: peft makes two
    matrices of one expert out of `r`, and does not look whether a pattern says otherwise."""
    linear, experts = ranks(shapes)
    of_linear = {".".join(name.split(".")[-2:]): rank for name, rank in linear.items()}
    rank = max({*experts.values()} or {*linear.values()})
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "base_model_name_or_path": base.name,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted(targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }
    return config | ({"rank_pattern": of_linear} if {*of_linear.values()} - {rank} else {})


def read_peft(folder: Path, base: Path, shapes: Shapes, alpha: int) -> dict[str, Tensor]:
    """The matrices by name. Errors: UserError if they are not those of this base, of these shapes and alpha."""
    from safetensors.torch import load_file

    adapter = adapter_files(folder)
    adapter.check_base(base)
    found = {name: tuple(shape) for name, shape in adapter.shapes.items()}
    theirs, ours = _ranks_told(found), _ranks_told(shapes)
    if theirs != ours or adapter.alpha != alpha:
        raise UserError(
            f"{folder}: adapter of {theirs}, alpha {adapter.alpha:g}; this training wants {ours}, alpha {alpha}: make"
            " them agree or start without it"
        )
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    if found != {name: tuple(shape) for name, shape in shapes.items()}:
        raise UserError(
            f"{folder}: an adapter of other layers than the base model's ({len(found)} matrices found, {len(shapes)}"
            " others expected); it was trained on another base or with other target_modules"
        )
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise UserError(f"{folder}: an adapter whose weights are not all finite; start from an earlier one")
    return tensors


def _ranks_told(shapes: Shapes) -> str:
    linear, experts = ({*of.values()} for of in ranks(shapes))
    others = experts if linear and experts != linear else set()
    return f"rank {_listed(linear or experts)}" + (f" ({_listed(others)} of experts)" if others else "")


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
