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
from tasks.engines.stored_types import FLOATS, refuse_misread

#: Bits of a value, of all types that torch reads.
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    "F4": 4,
}
#: As long as safetensors lets a header be.
_MOST = 100_000_000
#: What is in a header beside weights.
_ABOUT = "__metadata__"
_HEAD, _EMBEDDING = "lm_head.weight", "embed_tokens.weight"
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """bytes: in its file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


#: Of a projection of a layer's experts: each of what it is stored as, by expert.
Parts = dict[str, dict[int, StoredWeight]]


def stored_weights(folder: Path) -> dict[str, StoredWeight]:
    """By name. Errors: UserError for a file that is cut short or none, for a weight that two files hold, and for one
    that the index names and none does, but a head that is the embedding; for experts of a layer that are not all there,
    or not as many or of the shape that config.json says."""
    found: dict[str, StoredWeight] = {}
    for path in weight_files(folder):
        for name, weight in weights_of(path).items():
            if name in found:
                raise UserError(
                    f"model folder {folder}: {name} is in {found[name].file} and in {path.name}; transformers could"
                    " load the one and vLLM the other: take it out of one of them"
                )
            found[name] = weight
    named = _index(folder, found)
    tied = {_HEAD} if _config(folder).get("tie_word_embeddings") is True else set()
    if lacking := sorted(named.keys() - found.keys() - tied):
        raise UserError(
            f"model folder {folder}: {len(lacking)} weights are in no file of it, first {lacking[0]}, which its index"
            f" says is in {named[lacking[0]]}"
        )
    types = {name: weight.dtype for name, weight in found.items()}
    quantised = _config(folder).keys() & {"quantization_config", "compression_config"}
    refuse_misread(folder, types, quantised=bool(quantised))
    _check_experts(folder, found)
    return found


def weights_of(path: Path) -> dict[str, StoredWeight]:
    """Of one file, by name. Errors: UserError for one that is cut short or none."""
    at = path.stat()
    return _header(path, at.st_size, at.st_mtime_ns)


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


def refuse_second_head(folder: Path) -> dict[str, StoredWeight]:
    """As `stored_weights`. Errors: UserError for a head that config.json says is the embedding, and whose values are
    others: transformers would load it, and vLLM the embedding in its place."""
    found = stored_weights(folder)
    if _config(folder).get("tie_word_embeddings") is True and _HEAD in found:
        embedding = next((name for name in found if name.endswith(_EMBEDDING)), None)
        if embedding and _values(folder, found[_HEAD].file, _HEAD) != _values(folder, found[embedding].file, embedding):
            raise UserError(
                f"model folder {folder}: config.json says that the head is the embedding (tie_word_embeddings), and"
                f" {_HEAD} differs from {embedding}; set it to false, or take the head out"
            )
    return found


def _values(folder: Path, file: str, name: str) -> bytes:
    with (folder / file).open("rb") as read:
        length = int.from_bytes(read.read(8), "little")
        first, last = json.loads(read.read(length))[name]["data_offsets"]
        read.seek(8 + length + first)
        return read.read(last - first)


def loaded_bytes(folder: Path, bytes_per_value: int) -> int:
    """Of the weights once they are loaded: as many a value as asked, of whatever type they are stored in; quantised
    ones stay as they are."""
    return sum(
        math.prod(weight.shape) * bytes_per_value if weight.dtype in FLOATS else weight.bytes
        for weight in stored_weights(folder).values()
    )


@cache
def _header(path: Path, size: int, changed: int) -> dict[str, StoredWeight]:
    """size, changed: of the file, which is read again if they are others."""
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            told: dict[str, Any] = json.loads(file.read(min(length, _MOST)))
        spans = sorted(tuple(weight["data_offsets"]) for name, weight in told.items() if name != _ABOUT)
        found = {name: _weight(path, name, weight) for name, weight in told.items() if name != _ABOUT}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"model folder {path.parent}: {path.name} is cut short, or no safetensors file; get it again"
        ) from None
    if [last for _, last in spans[:-1]] != [first for first, _ in spans[1:]] or (spans[:1] and spans[0][0] != 0):
        raise UserError(f"model folder {path.parent}: weights of {path.name} overlap, or leave gaps; get it again")
    if (whole := 8 + length + max((last for _, last in spans), default=0)) != size:
        raise UserError(
            f"model folder {path.parent}: {path.name} has {size:,} bytes, and by its header {whole:,}; get it again"
        )
    try:
        with safe_open(path, "numpy"):
            pass
    except SafetensorError as error:
        raise UserError(f"model folder {path.parent}: {path.name} cannot be read ({error}); get it again") from None
    return found


def _weight(path: Path, name: str, told: dict[str, Any]) -> StoredWeight:
    """As a header tells it. Errors: UserError for a type that cannot be loaded; ValueError for a size that is another
    than its shape says."""
    first, last = told["data_offsets"]
    shape = tuple(map(int, told["shape"]))
    if (bits := _BITS.get(told["dtype"])) is None:
        raise UserError(
            f"model folder {path.parent}: {name} of {path.name} has the type {told['dtype']!r}, which torch does not"
            " read"
        )
    if min(shape, default=0) < 0 or bits * math.prod(shape) != 8 * (last - first):
        raise ValueError(name)
    return StoredWeight(path.name, told["dtype"], shape, last - first)


def _check_experts(folder: Path, found: dict[str, StoredWeight]) -> None:
    """Of a layer's experts, which are one weight once they are loaded: as many as config.json says or another layer
    has, and of each projection what the layers have that store it alike, as floats or quantised with its scales."""
    layers: dict[str, dict[str, Parts]] = {}
    for name, weight in found.items():
        if at := _EXPERT.fullmatch(name):
            projections = layers.setdefault(at[1], {})
            projections.setdefault(at[3].rpartition(".")[0], {}).setdefault(at[3], {})[int(at[2])] = weight
    alike: dict[tuple[str, bool], set[str]] = {}
    said = experts = _said_experts(folder)
    for projection, parts in (each for projections in layers.values() for each in projections.items()):
        alike.setdefault((projection, _as_floats(parts)), set()).update(parts)
        experts = max(experts, *(number + 1 for numbers in parts.values() for number in numbers))
    if said and experts > said:
        raise UserError(f"model folder {folder}: a layer of it has {experts} experts, and config.json says {said}")
    shapes = _said_shapes(folder)
    for layer, projections in layers.items():
        for projection in sorted({projection for projection, _ in alike}):
            parts = projections.get(projection, {})
            for which in sorted(alike.get((projection, _as_floats(parts))) or alike[projection, True]):
                _check_part(f"model folder {folder}: {layer}", which, parts.get(which, {}), experts, shapes.get(which))


def _check_part(
    where: str, which: str, found: dict[int, StoredWeight], experts: int, shape: tuple[int, ...] | None
) -> None:
    """shape: as config.json says; null where it does not."""
    if lacking := [n for n in range(experts) if n not in found]:
        raise UserError(f"{where}.{lacking[0]}.{which} is in no file of it")
    if odd := [n for n in found if found[n].shape != found[0].shape]:
        raise UserError(
            f"{where}.{odd[0]}.{which} is {_by(found[odd[0]].shape)}, and the first expert's {_by(found[0].shape)}"
        )
    if shape is not None and found[0].dtype in FLOATS and found[0].shape != shape:
        raise UserError(f"{where}.0.{which} is {_by(found[0].shape)}, and by config.json {_by(shape)}")


def _as_floats(parts: Parts) -> bool:
    return any(
        weight.dtype in FLOATS
        for which, experts in parts.items()
        if which.endswith("weight")
        for weight in experts.values()
    )


def _said_experts(folder: Path) -> int:
    """0: config.json does not say."""
    config = _config(folder)
    said = next((config[name] for name in _NUM_EXPERTS if config.get(name)), 0)
    return said if isinstance(said, int) else 0


def _said_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Of an expert's matrices, where they are known to lie as linear layers do."""
    config = _config(folder)
    hidden, inner = config.get("hidden_size"), config.get("moe_intermediate_size")
    if config.get("model_type") != "qwen3_moe" or not isinstance(hidden, int) or not isinstance(inner, int):
        return {}
    wide = {f"{name}.weight": (inner, hidden) for name in ("gate_proj", "up_proj")}
    return wide | {"down_proj.weight": (hidden, inner)}


def _config(folder: Path) -> dict[str, Any]:
    """Empty for one that is none, which is refused where it is read."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
