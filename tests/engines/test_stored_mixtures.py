"""Folders that are sound though a rule of names would refuse them, headers that nothing reads, and loads at once."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from flows.study.models import base_model
from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.loading import loaded, refuse_holes
from tasks.engines.sampling.transformers import TransformersGenerator
from tasks.engines.stored_weights import stored_weights
from tests.tiny_model import write_tiny_mixture

INDEX = "model.safetensors.index.json"
THREADS_OFF = "HF_DEACTIVATE_ASYNC_LOAD"


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        (
            {"a": {"dtype": "X9", "shape": [8], "data_offsets": [0, 8]}},
            8,
            "a of .* has the type 'X9', which torch does not",
        ),
        (
            {"a": {"dtype": "F6_E2M3", "shape": [8], "data_offsets": [0, 6]}},
            6,
            "has the type 'F6_E2M3', which torch does",
        ),
        ({"a": {"dtype": ["F32"], "shape": [8], "data_offsets": [0, 32]}}, 32, "is cut short, or no safetensors file"),
        ({"a": {"dtype": "I32", "shape": [8], "data_offsets": [0, 8]}}, 8, "is cut short, or no safetensors file"),
        ({"__metadata__": {"format": 1}}, 0, r"model\.safetensors cannot be read \(.*\); get it again"),
    ],
)
def test_what_safetensors_or_torch_does_not_read_is_a_sentence(
    tmp_path: Path, header: dict[str, object], size: int, said: str
) -> None:
    told = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(told).to_bytes(8, "little") + told + bytes(size))
    with pytest.raises(UserError, match=said):
        loaded(None, tmp_path, None)


def test_an_index_may_name_the_head_that_is_the_embedding(tmp_path: Path) -> None:
    """transformers reads it so where config.json ties them, and nothing else that no file holds."""
    folder = write_tiny_mixture(tmp_path / "tied")
    shard = (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    named = dict.fromkeys([*load_file(shard), "lm_head.weight"], shard.name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": named}))
    assert "lm_head.weight" not in stored_weights(folder)
    refuse_holes(folder)
    TransformersGenerator(folder, Hardware(device="cpu"))
    told = json.loads((folder / "config.json").read_text())
    for untied in (
        told | {"tie_word_embeddings": False},
        {k: v for k, v in told.items() if k != "tie_word_embeddings"},
    ):
        (folder / "config.json").write_text(json.dumps(untied))
        with pytest.raises(UserError, match=r"1 weights are in no file of it, first lm_head\.weight"):
            stored_weights(folder)
    (folder / "config.json").write_text(json.dumps(told))
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": named | {"model.head.weight": shard.name}}))
    with pytest.raises(UserError, match=r"1 weights are in no file of it, first model\.head\.weight"):
        stored_weights(folder)


#: Parts of a projection's weight as GPTQ, compressed-tensors and DeepSeek's FP8 store them, with their types.
QUANTISED = (
    {"qweight": torch.int32, "qzeros": torch.int32, "scales": torch.float16, "g_idx": torch.int32},
    {"weight_packed": torch.int32, "weight_scale": torch.bfloat16, "weight_shape": torch.int64},
    {"weight": torch.float8_e4m3fn, "weight_scale_inv": torch.float32},
)


@pytest.mark.parametrize("parts", QUANTISED, ids=lambda parts: next(iter(parts)))
def test_a_layer_of_a_quantised_mixture_may_be_left_as_it_is(tmp_path: Path, parts: dict[str, torch.dtype]) -> None:
    """Of three layers one in bfloat16, as recipes leave those that suffer most. One expert's scale that is not there is a
    hole, and so are all of a layer's whose weights are quantised as the others'."""
    tensors = {
        f"model.layers.{layer}.mlp.experts.{expert}.{projection}.{part}": torch.zeros(2, dtype=dtype)
        for layer in range(3)
        for expert in range(4)
        for projection in ("down_proj", "gate_proj", "up_proj")
        for part, dtype in ({"weight": torch.bfloat16} if layer == 1 else parts).items()
    }
    *_, scale = parts
    file = tmp_path / "model.safetensors"
    save_file(tensors, file)
    with pytest.raises(UserError, match=r"and config\.json has no quantization_config"):
        stored_weights(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "some"}}))
    assert len(stored_weights(tmp_path)) == len(tensors)
    for gone in (["2.mlp.experts.3.up_proj"], [f"2.mlp.experts.{n}.up_proj" for n in range(4)]):
        save_file({k: v for k, v in tensors.items() if k not in [f"model.layers.{at}.{scale}" for at in gone]}, file)
        with pytest.raises(UserError, match=rf"layers\.{gone[0]}\.{scale} is in no file of it"):
            stored_weights(tmp_path)
    save_file({k: v for k, v in tensors.items() if ".1.mlp.experts.2.up_proj" not in k}, file)
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.experts\.2\.up_proj\.weight is in no file of it"):
        stored_weights(tmp_path)


def spelt(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], **config: object) -> Path:
    """The tiny mixture with other weights in its file, and with more in its config.json."""
    write_tiny_mixture(folder)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | config))
    tensors = change(load_file(folder / "model.safetensors"))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def test_experts_are_as_many_and_as_large_as_config_json_says(tmp_path: Path) -> None:
    """All of them narrower, or twice as many: a traceback once the engine or the learner read them."""

    def narrower(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {n: t[1:] if ".experts." in n and "up_proj" in n else t for n, t in tensors.items()}

    whole = spelt(tmp_path / "whole", dict)
    config = json.loads((whole / "config.json").read_text())
    inner, hidden = config["moe_intermediate_size"], config["hidden_size"]
    said = rf"experts\.0\.up_proj\.weight is {inner - 1} x {hidden}, and by config\.json {inner} x {hidden}"
    with pytest.raises(UserError, match=said):
        base_model("narrower", spelt(tmp_path / "narrower", narrower))
    fewer = spelt(tmp_path / "fewer", dict, num_local_experts=config["num_local_experts"] // 2)
    with pytest.raises(UserError, match=rf"has {config['num_local_experts']} experts, and config\.json says"):
        base_model("fewer", fewer)


def test_a_head_beside_the_embedding_that_it_is_to_be_is_the_same(tmp_path: Path) -> None:
    """The learner took the one, and vLLM the other: two policies, and no word of it."""

    def twice(tensors: dict[str, torch.Tensor], by: float = 1) -> dict[str, torch.Tensor]:
        return tensors | {"lm_head.weight": by * tensors["model.embed_tokens.weight"]}

    same = spelt(tmp_path / "same", twice, tie_word_embeddings=True)
    refuse_holes(same)
    assert loaded(AutoModelForCausalLM, same, torch.float32) is not None
    other = spelt(tmp_path / "other", lambda tensors: twice(tensors, 2), tie_word_embeddings=True)
    for load in (refuse_holes, lambda folder: loaded(AutoModelForCausalLM, folder, torch.float32)):
        with pytest.raises(UserError, match=r"the head is the embedding .* lm_head\.weight differs from model\.embed"):
            load(other)
    refuse_holes(spelt(tmp_path / "untied", lambda tensors: twice(tensors, 2), tie_word_embeddings=False))


def test_shards_lie_beside_their_index(tmp_path: Path) -> None:
    """vLLM looks nowhere else, and said so by a traceback."""
    base = spelt(tmp_path / "base", dict)
    names = load_file(base / "model.safetensors")
    for elsewhere in ("sub/model.safetensors", "../model.safetensors"):
        (base / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, elsewhere)}))
        with pytest.raises(UserError, match=f"names {elsewhere}, and vLLM reads no other folder"):
            stored_weights(base)


def test_two_threads_load_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first took away what the second was loading by, and the second found nothing to take away."""
    monkeypatch.delenv(THREADS_OFF, raising=False)
    save_file({"w": torch.zeros(1)}, tmp_path / "model.safetensors")
    second, seen = threading.Event(), []

    class Slow:
        @staticmethod
        def from_pretrained(*_: object, **__: object) -> tuple[str, dict[str, list[str]]]:
            seen.append(os.environ.get(THREADS_OFF))
            if first := len(seen) == 1:
                second.wait(0.2)
            second.set()
            time.sleep(0 if first else 0.2)
            seen.append(os.environ.get(THREADS_OFF))
            return "a model", {"missing_keys": [], "mismatched_keys": []}

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: loaded(Slow, tmp_path, None), range(2))) == ["a model"] * 2
    assert seen == ["1"] * 4 and THREADS_OFF not in os.environ
