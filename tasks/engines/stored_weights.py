"""What a model's weight files say of themselves: names, types and shapes, by the files' headers; no weight is read."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.engines.model_files import INDEX, WEIGHTS, weight_files

#: Bytes of a value; of other types, which quantised weights have, the file's own count.
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
#: As long as safetensors lets a header be.
_MOST = 100_000_000
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """bytes: in its file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def stored_weights(folder: Path) -> dict[str, StoredWeight]:
    """By name. Errors: UserError for a file that is cut short or none, for a weight that two files hold, and for one
    that the index names and none does; for experts of a layer that are not all there, or not of one shape."""
    found: dict[str, StoredWeight] = {}
    for path in weight_files(folder):
        at = path.stat()
        for name, weight in _header(path, at.st_size, at.st_mtime_ns).items():
            if name in found:
                raise UserError(
                    f"model folder {folder}: {name} is in {found[name].file} and in {path.name}; transformers could"
                    " load the one and vLLM the other: take it out of one of them"
                )
            found[name] = weight
    named = _index(folder, found)
    if lacking := sorted(named.keys() - found.keys()):
        raise UserError(
            f"model folder {folder}: {len(lacking)} weights are in no file of it, first {lacking[0]}, which its index"
            f" says is in {named[lacking[0]]}"
        )
    _check_experts(folder, found)
    return found


def _index(folder: Path, found: dict[str, StoredWeight]) -> dict[str, str]:
    """The file of each weight, as an index says; empty where there is none and none is needed."""
    if (folder / INDEX).is_file():
        index = json.loads((folder / INDEX).read_text())
        if "metadata" not in index:
            raise UserError(
                f'model folder {folder}: {INDEX} has no "metadata", which transformers reads; add one, empty'
            )
        return index["weight_map"]
    if other := next((weight.file for weight in found.values() if weight.file != WEIGHTS), None):
        raise UserError(
            f"model folder {folder}: weights are in {other}, and no {INDEX} says so; get it too, or call a single file"
            f" {WEIGHTS}"
        )
    return {}


def loaded_bytes(folder: Path, bytes_per_value: int) -> int:
    """Of the weights once they are loaded: as many a value as asked, of whatever type they are stored in; quantised
    ones stay as they are."""
    return sum(
        math.prod(weight.shape) * bytes_per_value if weight.dtype in _FLOATS else weight.bytes
        for weight in stored_weights(folder).values()
    )


@cache
def _header(path: Path, size: int, changed: int) -> dict[str, StoredWeight]:
    """size, changed: of the file, which is read again if they are others."""
    found, spans = {}, []
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            told: dict[str, Any] = json.loads(file.read(min(length, _MOST)))
        for name, weight in told.items():
            if name != "__metadata__":
                first, last = weight["data_offsets"]
                shape = tuple(map(int, weight["shape"]))
                found[name] = StoredWeight(path.name, weight["dtype"], shape, last - first)
                spans.append((first, last))
                if (width := _FLOATS.get(weight["dtype"])) and (
                    min(shape, default=0) < 0 or width * math.prod(shape) != last - first
                ):
                    raise ValueError(name)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"model folder {path.parent}: {path.name} is cut short, or no safetensors file; get it again"
        ) from None
    spans.sort()
    if [last for _, last in spans[:-1]] != [first for first, _ in spans[1:]] or (spans[:1] and spans[0][0] != 0):
        raise UserError(f"model folder {path.parent}: weights of {path.name} overlap, or leave gaps; get it again")
    if (whole := 8 + length + max((last for _, last in spans), default=0)) != size:
        raise UserError(
            f"model folder {path.parent}: {path.name} has {size:,} bytes, and by its header {whole:,}; get it again"
        )
    return found


def _check_experts(folder: Path, found: dict[str, StoredWeight]) -> None:
    """Of a layer's experts, which are one weight once they are loaded: as many as config.json says or another layer
    has, and each of what they are made of in every layer that has any."""
    layers: dict[str, dict[str, dict[int, tuple[int, ...]]]] = {}
    for name, weight in found.items():
        if at := _EXPERT.fullmatch(name):
            layers.setdefault(at[1], {}).setdefault(at[3], {})[int(at[2])] = weight.shape
    parts = {which for made_of in layers.values() for which in made_of}
    there = (number for made_of in layers.values() for shapes in made_of.values() for number in shapes)
    experts = max([_said_experts(folder), *(number + 1 for number in there)])
    for layer, made_of in layers.items():
        for which in sorted(parts):
            shapes = made_of.get(which, {})
            if lacking := [n for n in range(experts) if n not in shapes]:
                raise UserError(f"model folder {folder}: {layer}.{lacking[0]}.{which} is in no file of it")
            if odd := [n for n, shape in shapes.items() if shape != shapes[0]]:
                raise UserError(
                    f"model folder {folder}: {layer}.{odd[0]}.{which} is {_by(shapes[odd[0]])}, and the first expert's"
                    f" {_by(shapes[0])}"
                )


def _said_experts(folder: Path) -> int:
    """0: config.json does not say, or is read where it can be refused."""
    try:
        config = json.loads((folder / "config.json").read_text())
        said = next((config[name] for name in _NUM_EXPERTS if config.get(name)), 0)
    except (OSError, ValueError, AttributeError):
        return 0
    return said if isinstance(said, int) else 0


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
