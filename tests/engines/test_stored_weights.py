"""Weights that are not all there, or not as config.json says, are a sentence before anything is sampled by them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flows.study.models import base_model
from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.loading import refuse_holes
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.engines.sampling.vllm import VllmGenerator
from tasks.engines.stored_weights import loaded_bytes, stored_weights
from tests.engines.learning.test_shards import SMALL
from tests.random_mixture import write_mixture

INDEX = "model.safetensors.index.json"
SHARD = "model-00006-of-00016.safetensors"
TWICE = "model.layers.0.input_layernorm.weight"
DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sharded")
    write_mixture(made, SMALL, shards=16)
    return made


@pytest.fixture
def folder(mixture: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mixture, tmp_path / "mixture"))


def changed(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def expert(tensors: dict[str, torch.Tensor]) -> str:
    """One that is neither a layer's first nor its last."""
    return next(name for name in sorted(tensors) if ".experts.3." in name)


def cut(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-100])


def cut_in_its_header(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:50])


def emptied(folder: Path) -> None:
    (folder / SHARD).write_bytes(b"")


def longer(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes() + bytes(64))


def in_two(folder: Path) -> None:
    changed(folder / SHARD, lambda tensors: tensors.update({TWICE: torch.zeros(32)}))


def without_an_expert_it_names(folder: Path) -> None:
    changed(folder / SHARD, lambda tensors: tensors.pop(expert(tensors)))


def without_an_expert(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    del index["weight_map"][expert(load_file(folder / SHARD))]
    (folder / INDEX).write_text(json.dumps(index))
    without_an_expert_it_names(folder)


def with_a_narrow_expert(folder: Path) -> None:
    changed(folder / SHARD, lambda tensors: tensors.update({expert(tensors): torch.zeros(24, 31)}))


def without(*parts: str) -> Callable[[Path], None]:
    """Without every weight whose name has one of these parts, in files and index."""

    def spoil(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        gone = [name for name in index["weight_map"] if any(part in name for part in parts)]
        assert gone
        for name in gone:
            del index["weight_map"][name]
        (folder / INDEX).write_text(json.dumps(index))
        for file in folder.glob("*.safetensors"):
            changed(file, lambda tensors: [tensors.pop(name, None) for name in gone])

    return spoil


def with_another_header(folder: Path, change: Callable[[list[dict[str, object]]], object]) -> None:
    """Of as many bytes, so that the file is as long as it says."""
    whole = (folder / SHARD).read_bytes()
    length = int.from_bytes(whole[:8], "little")
    told = json.loads(whole[8 : 8 + length])
    change([weight for name, weight in told.items() if name != "__metadata__"])
    header = json.dumps(told, separators=(",", ":")).encode()
    (folder / SHARD).write_bytes(len(header).to_bytes(8, "little") + header + whole[8 + length :])


def of_other_shape(folder: Path) -> None:
    with_another_header(folder, lambda weights: weights[0].update(shape=[3, 3]))


def overlapping(folder: Path) -> None:
    def change(weights: list[dict[str, object]]) -> None:
        alike = [weight for weight in weights if weight["shape"] == weights[-1]["shape"]]
        alike[0]["data_offsets"] = alike[-1]["data_offsets"]

    with_another_header(folder, change)


def nested(folder: Path) -> None:
    header = b'{"a":' + b"[" * 200_000
    (folder / SHARD).write_bytes(len(header).to_bytes(8, "little") + header)


def without_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def without_metadata(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({"weight_map": index["weight_map"]}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("layers.2.mlp.experts.15."), r"layers\.2\.mlp\.experts\.15\.down_proj\.weight is in no file"),
        (without(".experts.15."), r"experts\.15\.down_proj\.weight is in no file"),
        (without("layers.2.mlp.experts.15.up_proj"), r"layers\.2\.mlp\.experts\.15\.up_proj\.weight is in no file"),
        (
            without(*(f"layers.2.mlp.experts.{n}.up_proj" for n in range(16))),
            r"layers\.2.*\.0\.up_proj\.weight is in no",
        ),
        (of_other_shape, f"{SHARD} is cut short, or no safetensors file"),
        (overlapping, f"weights of {SHARD} overlap, or leave gaps; get it again"),
        (nested, f"{SHARD} is cut short, or no safetensors file"),
        (without_index, "weights are in model-00001-of-00016.safetensors, and no .*index.json says so"),
        (without_metadata, f'{INDEX} has no "metadata"'),
        (cut, rf"{SHARD} has [\d,]+ bytes, and by its header [\d,]+; get it again"),
        (cut_in_its_header, f"{SHARD} is cut short, or no safetensors file; get it again"),
        (emptied, f"{SHARD} is cut short, or no safetensors file"),
        (longer, f"{SHARD} has .* bytes, and by its header"),
        (in_two, f"{TWICE} is in model-00001-of-00016.safetensors and in {SHARD}"),
        (without_an_expert_it_names, "1 weights are in no file of it, first .*experts.3.* which its index says is in"),
        (without_an_expert, r"experts\.3\..* is in no file of it"),
        (with_a_narrow_expert, r"experts\.3\..* is 24 x 31, and the first expert's"),
    ],
)
def test_files_that_are_not_whole_are_refused_by_their_headers(
    folder: Path, spoil: Callable[[Path], None], said: str
) -> None:
    """As a download leaves them that broke off: it was a traceback of the engine's, or of the learner's after what was
    sampled had been paid for."""
    spoil(folder)
    with pytest.raises(UserError, match=said):
        base_model("mixture", folder)


def test_what_is_loaded_counts_in_the_type_that_it_is_loaded_in(folder: Path) -> None:
    """Published in float32 a model is as large in a GPU's memory as one in bfloat16: it was planned twice as large."""
    stored = stored_weights(folder)
    values = sum(tensor.numel() for file in folder.glob("*.safetensors") for tensor in load_file(file).values())
    assert len(stored) == len(json.loads((folder / INDEX).read_text())["weight_map"])
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for file in folder.glob("*.safetensors"):
            save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file, {"format": "pt"})
        assert [loaded_bytes(folder, width) for width in (2, 4)] == [2 * values, 4 * values]
    changed(folder / SHARD, lambda tensors: tensors.update({expert(tensors): tensors[expert(tensors)].to(torch.int8)}))
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "some"}}
    (folder / "config.json").write_text(json.dumps(config))
    assert loaded_bytes(folder, 4) == 4 * values - 3 * 24 * 32


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda name, tensors: tensors.pop(name), "1 weights are in no file of it, first {name}"),
        (
            lambda name, tensors: tensors.update({name: tensors[name][:-1].contiguous()}),
            "1 weights have other shapes than config.json says, first {name}",
        ),
    ],
)
def test_nothing_is_sampled_by_weights_that_are_made_up(
    tmp_path: Path, change: Callable[..., object], said: str
) -> None:
    """A matrix of one layer: transformers and vLLM sampled by whatever memory held in its place."""
    base, name = Path(shutil.copytree(DEMO, tmp_path / "base")), "model.layers.1.self_attn.q_proj.weight"
    changed(base / "model.safetensors", lambda tensors: change(name, tensors))
    with pytest.raises(UserError, match=said.format(name=name)):
        TransformersGenerator(base, Hardware(device="cpu"))


def test_vllm_is_given_no_model_with_a_hole(tmp_path: Path, mixture: Path) -> None:
    """It keeps queries, keys and values as one matrix, and left a third of it as memory was."""
    for base, name in ((DEMO, "model.layers.1.self_attn.q_proj.weight"), (mixture, "model.layers.2.mlp.gate.weight")):
        refuse_holes(base)
        holed = Path(shutil.copytree(base, tmp_path / base.name))
        for file in holed.glob("*.safetensors"):
            changed(file, lambda tensors, name=name: tensors.pop(name, None))
        if (holed / INDEX).is_file():
            index = json.loads((holed / INDEX).read_text())
            del index["weight_map"][name]
            (holed / INDEX).write_text(json.dumps(index))
        with pytest.raises(UserError, match=f"1 weights are in no file of it, first {name}"):
            VllmGenerator(holed, Hardware(device="cpu"), 0)
    unknown = Path(shutil.copytree(DEMO, tmp_path / "unknown"))
    told = json.loads((unknown / "config.json").read_text())
    (unknown / "config.json").write_text(json.dumps(told | {"model_type": "unheard_of"}))
    refuse_holes(unknown)


@pytest.mark.parametrize(
    ("whose", "parts", "said"),
    [
        ("mixture", ["layers.2.mlp.experts."], r"2 weights .* first model\.layers\.2\.mlp\.experts\.gate_up_proj"),
        ("demo", ["q_proj.weight"], r"weights .* first model\.layers\.0\.self_attn\.q_proj\.weight"),
        ("demo", ["model.norm.weight"], r"1 weights .* first model\.norm\.weight"),
    ],
)
def test_what_no_layer_has_is_a_hole_too(
    tmp_path: Path, mixture: Path, whose: str, parts: list[str], said: str
) -> None:
    """All of a layer's experts, and a matrix of every layer: vLLM sampled by zeros or whatever memory held."""
    holed = Path(shutil.copytree(mixture if whose == "mixture" else DEMO, tmp_path / "holed"))
    if whose == "mixture":
        without(*parts)(holed)
    else:
        changed(
            holed / "model.safetensors",
            lambda tensors: [tensors.pop(name) for name in list(tensors) if any(part in name for part in parts)],
        )
    with pytest.raises(UserError, match=said):
        refuse_holes(holed)
