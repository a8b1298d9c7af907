"""The files of a model folder: their hash, their metadata, and loading them with transformers.

A model consists of its weights, config and tokenizer. A README, weights in another format or another folder name do not
change its identity, but one changed byte of a weight does. transformers gives missing weights random values, and names
them in its loading report; such models are an error. The report of loading onto the `meta` device also shows whether
vLLM may load the folder.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from storage.artifacts.fingerprint import file_digest
from storage.errors import UserError
from storage.roots import write_durably

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
CONFIG = ("config.json", "generation_config.json")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
)
#: Files of a sentence encoder: its modules, their names, and its longest text.
ENCODER = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
#: Files of a PEFT adapter.
ADAPTER = "adapter_config.json"
ADAPTER_FILES = (ADAPTER, "adapter_model.safetensors")
#: Date for chat templates that insert today's date; it is the default of Llama's template. With a fixed date, a group
#: that grows on another day keeps its prompt.
TODAY = date(2024, 7, 26)
#: Hashes of smaller files are not cached, because reading these files again is fast.
REMEMBERED_BYTES = 64 << 20


#: Types of weights that are loaded as numbers. Other types belong to quantised models.
FLOATS = ("F64", "F32", "F16", "BF16")


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a model: the shards in its index, else `model.safetensors`, else none. Raise UserError
    for an unreadable index, and if both exist, because transformers and vLLM would load different files."""
    if not (folder / INDEX).is_file():
        return [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else []
    try:
        named = {*json.loads((folder / INDEX).read_text())["weight_map"].values()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"model folder {folder}: {INDEX} cannot be read ({error!r})") from None
    if (folder / WEIGHTS).is_file() and WEIGHTS not in named:
        raise UserError(
            f"model folder {folder}: it has both {WEIGHTS} and the shards of {INDEX}; transformers and vLLM would load"
            " different ones. Move the file or the shards to another folder"
        )
    return [folder / name for name in sorted(named)]


def read_config(base: Path) -> dict[str, Any]:
    """Return config.json of a model folder. Raise UserError if the file, the weights or shards are missing."""
    try:
        config = json.loads((base / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"model folder {base}: it has no config.json in Hugging Face format ({error})") from None
    shards = weight_files(base)
    if missing := [shard for shard in shards if not shard.is_file()]:
        raise UserError(f"model folder {base}: {len(missing)} of {len(shards)} shards are missing; download it again")
    if not shards:
        raise UserError(f"model folder {base} has no weights ({WEIGHTS}, or shards with {INDEX}); download it again")
    return config


def num_experts(config: dict[str, Any]) -> int:
    """Return the number of experts of a mixture; 0 for a dense model. transformers has two names for this field."""
    return config.get("num_experts") or config.get("num_local_experts") or 0


class StoredWeight(NamedTuple):
    """The description of a stored weight. dtype: the name in safetensors, such as BF16."""

    dtype: str
    shape: tuple[int, ...]


def stored_weights(folder: Path) -> dict[str, StoredWeight]:
    """Return a model's weights by name, from the headers of its files. Raise UserError for a truncated or invalid file,
    and for integer weights without a quantisation in config.json, which transformers would read as numbers."""
    found = {name: weight for path in weight_files(folder) for name, weight in weights_of(path).items()}
    odd = (name for name, weight in found.items() if name.endswith("weight") and weight.dtype not in FLOATS)
    if (name := next(odd, None)) and not read_config(folder).keys() & {"quantization_config", "compression_config"}:
        raise UserError(
            f"model folder {folder}: {name} is stored as {found[name].dtype}, but config.json has no"
            " quantization_config; use the published model"
        )
    return found


def weights_of(path: Path) -> dict[str, StoredWeight]:
    """Return the weights of one file by name. Raise UserError for a truncated or invalid file."""
    at = path.stat()
    return _header(path, at.st_size, at.st_mtime_ns)


@cache
def _header(path: Path, size: int, changed: int) -> dict[str, StoredWeight]:
    """Read a header, which is cached by the file's size and time."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: StoredWeight(one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
    except SafetensorError:
        raise UserError(f"model file {path}: it is truncated or not a safetensors file; download it again") from None


def loaded_bytes(folder: Path, bytes_per_value: int) -> int:
    """Return the bytes of the weights when loaded with so many bytes per value. Quantised weights keep their size."""
    total = 0
    for weight in stored_weights(folder).values():
        stored = int(bits[0]) if (bits := re.search(r"\d+", weight.dtype)) else 8
        total += math.prod(weight.shape) * (8 * bytes_per_value if weight.dtype in FLOATS else stored)
    return total // 8


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model or sentence encoder, sorted by path. Raise UserError for a folder with an adapter,
    which transformers would apply without a message, and for pickled weights."""
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"model folder {folder} also holds an adapter ({ADAPTER}), which transformers would apply to the weights;"
            " move the adapter to another folder, or merge it into the weights"
        )
    found = {path for part in (folder, *_modules(folder)) for path in _files_of(part)}
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _files_of(folder: Path) -> Iterator[Path]:
    named = [folder / name for name in (INDEX, *CONFIG, *TOKENIZER, *ENCODER)]
    yield from (path for path in [*named, *folder.glob("additional_chat_templates/*.jinja")] if path.is_file())
    weights = weight_files(folder)
    # without safetensors, a sentence encoder would load its modules from these files
    if not weights and (pickled := sorted(folder.glob("pytorch_model*.bin"))):
        raise UserError(f"model folder {folder}: {pickled[0].name} is a pickle: convert it to safetensors")
    yield from weights


def _modules(folder: Path) -> Iterator[Path]:
    """Yield the folders of a sentence encoder's modules, such as pooling."""
    if (folder / "modules.json").is_file():
        listed = json.loads((folder / "modules.json").read_text())
        yield from (folder / module["path"] for module in listed if module.get("path"))


def model_digest(folder: Path) -> str:
    """Return a sha256 over paths and contents of the model's files."""
    lines = [f"{path.relative_to(folder).as_posix()}:{remembered_digest(path)}\n" for path in model_files(folder)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def weights_identity(folder: Path) -> str:
    """Return a sha256 over the contents of the weight files, which their names do not change."""
    return hashlib.sha256("".join(map(remembered_digest, weight_files(folder))).encode()).hexdigest()


def former_identity(folder: Path) -> str:
    """Return the identity that earlier versions used: sizes, first and last MiB of the weight files."""
    digest = hashlib.sha256()
    for path in weight_files(folder):
        size, end = path.stat().st_size, 1 << 20
        with path.open("rb") as file:
            digest.update(f"{size}:".encode() + file.read(end))
            file.seek(max(0, size - end))
            digest.update(file.read())
    return digest.hexdigest()


def remembered_digest(path: Path) -> str:
    """Return a file's sha256, cached for large files. The key is inode, size, modification time and status-change time.
    Users cannot set the last one, so every change is noticed."""
    stat = path.stat()
    if stat.st_size < REMEMBERED_BYTES:
        return file_digest(path)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "varband" / "digests"
    identity = (path.resolve(), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    key = hashlib.sha256(":".join(map(str, identity)).encode()).hexdigest()
    if (cache / key).exists():
        return (cache / key).read_text()
    write_durably(cache / key, (found := file_digest(path)).encode())
    return found


def names_of(folder: Path) -> list[str]:
    """Return names that a server may have for the model in this folder; for a hub snapshot also its repository.

    >>> names_of(Path("/hub/models--Qwen--Qwen2.5-1.5B/snapshots/0a1b"))
    ['0a1b', '0a1b', 'Qwen2.5-1.5B']
    """
    on_hub = [part.split("--")[-1] for part in folder.parts if part.startswith("models--")]
    return [folder.name, folder.resolve().name, *on_hub]


_OWN_CODE = (
    "it needs its own code (auto_map in its configs), which Varband never runs; use a model of a type that"
    " transformers supports"
)


def loaded(kind: Any, folder: Path, dtype: Any, device: Any = None, **how: Any) -> Any:
    """Load a model. Raise UserError for incomplete files, missing weights, and shapes that contradict config.json.
    kind: one of transformers' Auto classes. device: a GPU, loaded weight by weight, or `meta`, which reads nothing;
    None: the CPU."""
    stored_weights(folder)
    if device is None:  # reading ahead in threads would have the whole model in memory twice
        os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
    with _own_code_refused(folder):
        try:
            model, about = kind.from_pretrained(
                folder,
                dtype=dtype,
                device_map=None if device is None else {"": device},
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **how,
            )
        except RuntimeError as error:
            if "conversion of the weights" not in str(error):
                raise
            raise UserError(
                f"model folder {folder}: the number or size of its experts differs between layers or projections;"
                " download it again"
            ) from None
    if lacking := sorted(about["missing_keys"]):
        raise UserError(f"model folder {folder}: {len(lacking)} weights are missing, for example {lacking[0]}")
    if others := sorted(about["mismatched_keys"]):
        raise UserError(
            f"model folder {folder}: the shapes of {len(others)} weights do not match config.json, for example"
            f" {others[0][0]}"
        )
    return model


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer of a model folder. Raise UserError for a tokenizer that needs code from that folder."""
    from transformers import AutoTokenizer

    with _own_code_refused(folder):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@contextmanager
def _own_code_refused(folder: Path) -> Iterator[None]:
    """Turn transformers' error about a model's own code into one that names the folder. Without
    `trust_remote_code=False` transformers would ask at the terminal, and the answer `y` would run the code."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise UserError(f"model folder {folder}: {_OWN_CODE}") from None


def refuse_holes(folder: Path) -> None:
    """Raise UserError for a model that transformers would load incompletely, because vLLM leaves missing weights unset.

    Quantised models and types that transformers does not know are not checked. Raise UserError also as `loaded` does,
    for a model that needs code from its folder, and for files that only vLLM would load: without an index, vLLM loads
    every .safetensors file of a folder.
    """
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    strays = [] if (folder / INDEX).is_file() else sorted({*folder.glob("*.safetensors")} - {*weight_files(folder)})
    if strays:
        raise UserError(
            f"model folder {folder}: vLLM would also load {strays[0].name}; move this file to another folder"
        )
    config = read_config(folder)
    known = config.get("model_type") in CONFIG_MAPPING
    if "auto_map" in config and not known:
        raise UserError(f"model folder {folder}: {_OWN_CODE}")
    if known and not config.get("quantization_config"):
        loaded(AutoModelForCausalLM, folder, torch.bfloat16, "meta")


def import_before_threads(model: Path) -> None:
    """Import the libraries of sampler, learner and encoder on the calling thread. transformers imports lazily, and if
    two threads do that at once, they may fail with `cannot import name 'AutoConfig' from 'transformers'`. A missing
    library or model is reported later, where it is used."""
    for name in ("peft", "sentence_transformers", "transformers.modeling_layers", "vllm.lora.request"):
        with suppress(ImportError):
            import_module(name)
    with suppress(ImportError):
        from vllm import LLM, SamplingParams  # noqa: F401
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    for name in ("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoTokenizer"):
        getattr(transformers, name)
    with suppress(OSError, ValueError, KeyError):
        MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.from_pretrained(model, trust_remote_code=False))]
