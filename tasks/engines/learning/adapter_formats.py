"""An adapter on disk, in PEFT's format or as one block for the next rollouts, from one flat vector.

PEFT: a safetensors file is a header and the matrices' bytes end to end, which is what the flat vector is: so it is
written as it lies, in pieces by several threads.

The block of the next rollouts is one that learner and sampler map: a mixture's has 37,000 matrices, and a
file that names each takes longer to read than all of its weights take to merge.

`adapter.flat`: all matrices end to end, in the sampler's type. `adapter.flat.json`: that type, alpha, and name and
shape of each in their order; the experts of a layer and projection are one. Blocks are used again from step to step:
the first touch of a page costs more than all that is written to it later.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.domain.policies import ServedAdapter
from tasks.engines.adapter_files import ADAPTER, OF_BASE, PREFIX, WEIGHTS, adapter_files, ranks
from tasks.engines.hardware import BYTES_PER_VALUE
from tasks.engines.learning.merging import Products, read_products
from tasks.engines.model_files import weights_identity

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_FLAT = "adapter.flat"
_SHAPES = "adapter.flat.json"
#: Of one copy between two places in memory: one thread takes a third of a second for a gigabyte.
_THREADS = 8
#: Blocks that this process has mapped: as many as are in use at `staleness: 1`, and one.
_KEPT = 3
_mappings: dict[tuple[int, int, torch.dtype, int], Tensor] = {}


def write_flat(
    folder: Path, flat: Tensor, stacks: Mapping[str, tuple[int, ...]], alpha: float, used: Path | None = None
) -> None:
    """flat: of `stacks`, named as PEFT does (`….lora_A.weight`), on any device. used: a folder whose block nobody reads
    any more; it becomes this one's."""
    folder.mkdir(parents=True, exist_ok=True)
    if used is not None and has_block(used):
        os.replace(used / _FLAT, folder / _FLAT)
    file = folder / _FLAT
    if not file.is_file() or file.stat().st_size != flat.nbytes:
        with file.open("wb") as new:
            new.truncate(flat.nbytes)
    _copy(_mapped(file, flat.dtype, flat.numel()), _beside(flat))
    dtype = str(flat.dtype).removeprefix("torch.")
    (folder / _SHAPES).write_text(json.dumps({"dtype": dtype, "alpha": alpha, "stacks": list(stacks.items())}))


def has_block(folder: Path) -> bool:
    return (folder / _FLAT).is_file()


def drop_block(folder: Path) -> None:
    """From here on the folder's adapter is the one in PEFT's format."""
    for name in (_SHAPES, _FLAT):
        (folder / name).unlink(missing_ok=True)


def served_name(adapter: ServedAdapter) -> str:
    """The name by which engines and servers keep an adapter: its own, and a digest of where its file lies and of the
    file's inode, size and time. So other weights never go by a name that an engine knows."""
    file = next((f for name in (_SHAPES, WEIGHTS) if (f := adapter.folder / name).is_file()), adapter.folder)
    at = file.stat()
    stamp = f"{file.resolve()}:{at.st_dev}:{at.st_ino}:{at.st_size}:{at.st_mtime_ns}"
    return f"{adapter.name}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"


def whole(folder: Path) -> Path:
    """The folder. Errors: UserError if an adapter was handed over as a block that is not there as a whole: what is
    lacking would be read as zeros, and the base model sampled from."""
    if not (folder / _SHAPES).is_file():
        return folder
    try:
        about = json.loads((folder / _SHAPES).read_text())
        size = sum(math.prod(shape) for _, shape in about["stacks"]) * BYTES_PER_VALUE[about["dtype"]]
        there = (folder / _FLAT).stat().st_size
    except (OSError, ValueError, LookupError, TypeError):
        size, there = 1, 0
    if there != size:
        raise UserError(
            f"{folder}: the adapter that was handed over for the next rollouts is cut short or gone; remove the newest"
            " folder of the training's checkpoints, and the same command goes on from the one before"
        )
    return folder


def read_served(folder: Path, device: str) -> Products:
    """An adapter in either format, on `device`. Errors: as `whole`."""
    import torch

    if not (whole(folder) / _SHAPES).is_file():
        return read_products(folder, device)
    about = json.loads((folder / _SHAPES).read_text())
    sizes = [math.prod(shape) for _, shape in about["stacks"]]
    flat = _mapped(folder / _FLAT, getattr(torch, about["dtype"]), sum(sizes))
    if device != "cpu":
        staged = _staging(flat.numel(), flat.dtype)
        _copy(staged, flat)
        flat = staged.to(device)
    matrices = {
        name.removesuffix(".weight"): part.view(shape)
        for (name, shape), part in zip(about["stacks"], flat.split(sizes), strict=True)
    }
    names = [name.removesuffix(".lora_A") for name in matrices if name.endswith(".lora_A")]
    return Products({n: (matrices[f"{n}.lora_A"], matrices[f"{n}.lora_B"]) for n in names}, about["alpha"])


def _mapped(file: Path, dtype: torch.dtype, size: int) -> Tensor:
    """A block of `size` values. One that is mapped keeps its inode, wherever it is moved."""
    import torch

    at = file.stat()
    which = at.st_dev, at.st_ino, dtype, size
    if which not in _mappings:
        while len(_mappings) >= _KEPT:
            del _mappings[next(iter(_mappings))]
        _mappings[which] = torch.from_file(str(file), shared=True, size=size, dtype=dtype)
    return _mappings[which]


def _beside(flat: Tensor) -> Tensor:
    """In host memory."""
    return _staging(flat.numel(), flat.dtype).copy_(flat) if flat.is_cuda else flat


@cache
def _staging(size: int, dtype: torch.dtype) -> Tensor:
    """Pinned, for copies from and to a GPU."""
    import torch

    return torch.empty(size, dtype=dtype, pin_memory=True)


def _copy(out: Tensor, of: Tensor) -> None:
    pieces = [(o, p) for o, p in zip(out.chunk(_THREADS), of.chunk(_THREADS), strict=True)]
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda pair: pair[0].copy_(pair[1]), pieces))


Shapes = Mapping[str, tuple[int, ...]]
_TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
#: Values that one thread writes at a time.
_PIECE = 1 << 24


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


def read_peft(folder: Path, base: Path, shapes: Shapes, alpha: int, *, whole: bool = True) -> dict[str, Tensor]:
    """Return the matrices by name. whole: false takes an adapter of some layers only, whose others are zero.

    Errors: UserError if they are not those of this base, of these shapes and alpha.
    """
    import torch
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
    if not whole:
        absent = {name: shape for name, shape in shapes.items() if name not in found}
        found |= {name: tuple(shape) for name, shape in absent.items()}
        tensors |= {name: torch.zeros(*shape) for name, shape in absent.items()}
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
