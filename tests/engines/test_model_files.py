"""A model by content: what transformers and vLLM would load counts, what lies beside it does not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from storage.errors import UserError
from tasks.engines import model_files
from tasks.engines.model_files import model_digest, remembered_digest, weight_files, weights_identity

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
STRAYS = (
    "notes.txt",
    "README.md",
    "consolidated.safetensors",
    "pytorch_model.bin",
    "training_args.json",
    ".gitattributes",
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def sharded(folder: Path) -> Path:
    """The same folder with its weights in two shards and an index."""
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name, part in zip(names, (whole[: len(whole) // 2], whole[len(whole) // 2 :]), strict=True):
        (folder / name).write_bytes(part)
    (folder / model_files.INDEX).write_text(json.dumps({"weight_map": {"a": names[0], "b": names[1], "c": names[0]}}))
    return folder


def test_what_lies_beside_a_model_is_no_part_of_it(model: Path) -> None:
    for folder in (model, sharded(Path(shutil.copytree(model, model.parent / "sharded")))):
        before, weights = model_digest(folder), weights_identity(folder)
        for name in STRAYS:
            (folder / name).write_text("something")
        moved = folder.rename(folder.with_name(f"renamed {folder.name}"))
        assert (model_digest(moved), weights_identity(moved)) == (before, weights)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "chat_template.jinja"])
def test_every_byte_of_a_model_counts(model: Path, name: str) -> None:
    """Also where size and time of change stay what they were."""
    before, stat = model_digest(model), (model / name).stat()
    content = bytearray((model / name).read_bytes())
    content[-2] ^= 1
    (model / name).write_bytes(content)
    os.utime(model / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (model / name).stat().st_size == stat.st_size
    assert model_digest(model) != before


def test_a_remembered_digest_is_not_taken_for_a_file_that_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "REMEMBERED_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (file := tmp_path / "weights").write_bytes(b"0" * 100)
    before, stat = remembered_digest(file), file.stat()
    assert remembered_digest(file) == before
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()], "it was not remembered at all"
    with file.open("r+b") as handle:
        handle.seek(50)
        handle.write(b"1")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert remembered_digest(file) != before


def test_an_adapter_beside_the_weights_is_refused(model: Path) -> None:
    """transformers applies it without a word: the base model would be another policy under the same name."""
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="transformers would apply the adapter"):
        model_digest(model)


def test_an_index_beside_a_whole_file_is_refused_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    """transformers would load model.safetensors, vLLM the shards: a learner would train on other weights than are served."""
    (tmp_path / "model-00001-of-00001.safetensors").touch()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}}))
    assert [path.name for path in weight_files(tmp_path)] == ["model-00001-of-00001.safetensors"]
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UserError, match=r"it has both model.safetensors and the shards"):
        weight_files(tmp_path)
    for text in ("{", "{}"):
        index.write_text(text)
        with pytest.raises(UserError, match="cannot be read"):
            weight_files(tmp_path)
