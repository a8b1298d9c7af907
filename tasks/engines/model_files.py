"""Which files of a folder are the model, and their digest: what transformers and vLLM load, nothing that lies beside.

A model is its weights, its config and its tokenizer. A README, notes, weights in another format or a renamed folder
make no other model; one changed byte of a weight does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from storage.artifacts.fingerprint import file_digest
from storage.errors import UserError

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
#: Of a sentence encoder: which modules it is made of, how they are called, how long a text may be.
ENCODER = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
#: What peft leaves in a folder.
ADAPTER = "adapter_config.json"
ADAPTER_FILES = (ADAPTER, "adapter_model.safetensors")
#: The date in the prompts of chat templates that write today's: the one that Llama's own template falls back to. So a
#: group that is grown on another day has the prompt that it had.
TODAY = date(2024, 7, 26)
#: Reading a smaller file again costs less than a wrong memory of it could.
REMEMBERED_BYTES = 64 << 20


def weight_files(folder: Path) -> list[Path]:
    """What holds a model's weights: the shards that its index names, else `model.safetensors`, else all there are.

    Errors: UserError for an index that cannot be read, for shards in another folder, which vLLM does not find, and for
    both, of which transformers would load the one file and vLLM the shards.
    """
    if (folder / INDEX).is_file():
        try:
            named = {str(name) for name in json.loads((folder / INDEX).read_text())["weight_map"].values()}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"model folder {folder}: {INDEX} cannot be read ({error!r})") from None
        if elsewhere := sorted(name for name in named if Path(name).name != name):
            raise UserError(
                f"model folder {folder}: {INDEX} names {elsewhere[0]}, and vLLM reads no other folder; shards lie"
                " beside it"
            )
        if (folder / WEIGHTS).is_file() and WEIGHTS not in named:
            raise UserError(
                f"model folder {folder}: {WEIGHTS} lies beside the shards of {INDEX}; transformers would load the one"
                " and vLLM the others: move it or the index away"
            )
        return [folder / name for name in sorted(named)]
    return [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else sorted(folder.glob("*.safetensors"))


def refuse_strays(folder: Path) -> None:
    """Errors: UserError for weights that vLLM would load and the learner would not: without an index it takes every
    .safetensors of a folder."""
    strays = [] if (folder / INDEX).is_file() else sorted(set(folder.glob("*.safetensors")) - set(weight_files(folder)))
    if strays:
        raise UserError(f"model folder {folder}: vLLM would load {strays[0].name} beside the weights: move it away")


def model_files(folder: Path) -> list[Path]:
    """Every file that a model or a sentence encoder is made of, sorted by where it lies in the folder.

    Errors: UserError for a folder that holds an adapter too, which transformers would apply without a word, and for
    weights that are pickled.
    """
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"model folder {folder}: transformers would apply the adapter beside the weights ({ADAPTER}): move it away,"
            " or merge it into the weights"
        )
    found = {path for part in (folder, *_modules(folder)) for path in _files_of(part)}
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _files_of(folder: Path) -> Iterator[Path]:
    named = [folder / name for name in (INDEX, *CONFIG, *TOKENIZER, *ENCODER)]
    yield from (path for path in [*named, *folder.glob("additional_chat_templates/*.jinja")] if path.is_file())
    weights = weight_files(folder)
    # a sentence encoder's modules are loaded from these where there is nothing better
    if not weights and (pickled := sorted(folder.glob("pytorch_model*.bin"))):
        raise UserError(f"model folder {folder}: {pickled[0].name} is a pickle: convert it to safetensors")
    yield from weights


def _modules(folder: Path) -> Iterator[Path]:
    """Folders of a sentence encoder's modules, such as its pooling."""
    if (folder / "modules.json").is_file():
        listed = json.loads((folder / "modules.json").read_text())
        yield from (folder / module["path"] for module in listed if module.get("path"))


def model_digest(folder: Path) -> str:
    """sha256 over the places and contents of the model's files."""
    lines = [f"{path.relative_to(folder).as_posix()}:{remembered_digest(path)}\n" for path in model_files(folder)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def former_digest(folder: Path) -> str:
    """What a model was called when every .safetensors, .json, .jinja and .txt of its folder counted."""
    patterns = ("*.safetensors", "*.json", "*.jinja", "*.txt")
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return hashlib.sha256("".join(f"{p.name}:{remembered_digest(p)}\n" for p in paths).encode()).hexdigest()


def weights_identity(folder: Path) -> str:
    """sha256 over the contents of the weight files, whatever their names are."""
    return hashlib.sha256("".join(map(remembered_digest, weight_files(folder))).encode()).hexdigest()


def former_identity(folder: Path) -> str:
    """As adapters and checkpoints were marked when sizes, first and last MiB of the weight files stood for all."""
    digest = hashlib.sha256()
    for path in weight_files(folder):
        size, end = path.stat().st_size, 1 << 20
        with path.open("rb") as file:
            digest.update(f"{size}:".encode() + file.read(end))
            file.seek(max(0, size - end))
            digest.update(file.read())
    return digest.hexdigest()


def remembered_digest(path: Path) -> str:
    """A large file's sha256, kept among the user's caches so that it is read once.

    Kept by inode, size and both times: a file that was written to and given its old time of change back still has a new
    time of status, which nobody can set.
    """
    stat = path.stat()
    if stat.st_size < REMEMBERED_BYTES:
        return file_digest(path)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "varband" / "digests"
    told = (path.resolve(), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    key = hashlib.sha256(":".join(map(str, told)).encode()).hexdigest()
    if (cache / key).exists():
        return (cache / key).read_text()
    cache.mkdir(parents=True, exist_ok=True)
    (cache / f"{key}.{os.getpid()}").write_text(found := file_digest(path))
    os.replace(cache / f"{key}.{os.getpid()}", cache / key)
    return found
