"""A model folder of random weights in the names and shapes of Qwen3-30B-A3B, sharded as the hub's: for questions of speed and memory.

61 GB with 48 layers. Shards are written side by side, as many as there are cores.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import save_file

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151_936,
}


def write_mixture(folder: Path, config: dict, shards: int) -> None:
    """config: as CONFIG. Tensors are shared out over the shards in their order, about evenly by bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = list(named_shapes(config))
    total = sum(rows * (columns or 1) for _, (rows, columns) in shapes)
    parts: list[list[tuple[str, tuple[int, int]]]] = [[] for _ in range(shards)]
    done = 0
    for name, (rows, columns) in shapes:
        parts[min(shards - 1, done * shards // total)].append((name, (rows, columns)))
        done += rows * (columns or 1)
    names = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda i: save_file(_tensors(parts[i], i), folder / names[i], {"format": "pt"}), range(shards)))
    where = {name: names[i] for i, part in enumerate(parts) for name, _ in part}
    index = {"metadata": {"total_size": 2 * total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def named_shapes(config: dict) -> Iterator[tuple[str, tuple[int, int]]]:
    """(name, (rows, columns)), columns 0 for a vector, as the published checkpoint names them."""
    hidden, inner, head = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{norm}.weight", (hidden, 0)
        for norm in ("q_norm", "k_norm"):
            yield f"{layer}.self_attn.{norm}.weight", (head, 0)
        for projection, shape in {"q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, q)}.items():
            yield f"{layer}.self_attn.{projection}_proj.weight", shape
        yield f"{layer}.mlp.gate.weight", (config["num_experts"], hidden)
        for e in range(config["num_experts"]):
            for projection, shape in {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
                yield f"{layer}.mlp.experts.{e}.{projection}_proj.weight", shape
    yield "model.norm.weight", (hidden, 0)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def _tensors(part: list[tuple[str, tuple[int, int]]], seed: int) -> dict[str, torch.Tensor]:
    """bfloat16 of standard deviation 0.02; norms are ones. Drawn on the GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator(device).manual_seed(seed)
    made = {}
    for name, (rows, columns) in part:
        if not columns:
            made[name] = torch.ones(rows, dtype=torch.bfloat16)
            continue
        values = torch.randn(rows, columns, generator=draw, device=device, dtype=torch.bfloat16)
        made[name] = values.mul_(0.02).cpu()
    return made
