"""What adapters beside the weights take of each GPU: by hand, and by what vLLM's own layers set aside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks.engines.hardware import Hardware
from tasks.engines.sampling.settings import adapter_bytes, slot_parameters
from tests.random_mixture import CONFIG

DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "vocab_size": 640,
}
MIXTURE = DENSE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def test_a_slot_by_hand() -> None:
    """Four GPUs, two heads of keys: A of q, k, v whole 3·64, B 32 + 2·16, o 32 + 64: 352; an MLP 3·(64 + 32) = 288,
    four experts 4·3·(64 + 8) and a router 64 + 4: 932; embedding and head 2·(640 + 64) = 1,408."""
    assert slot_parameters(DENSE, 8, 4) == 8 * (3 * (352 + 288) + 1408)
    assert slot_parameters(MIXTURE, 8, 4) == 8 * (3 * (352 + 932) + 1408)


@pytest.mark.parametrize(("gpus", "gib"), [(1, 3.168), (2, 2.733), (4, 2.516), (8, 2.407)])
def test_more_gpus_make_a_mixture_s_slot_little_smaller(gpus: int, gib: float) -> None:
    """Of Qwen3-30B-A3B at rank 32 in bfloat16, for of an expert 3·2,048 values a rank lie on each GPU and 3·768 are
    dealt out. It was counted as a quarter and an eighth: a tenth of all that the sampler needs, and a fifth."""
    hardware = Hardware(tensor_parallel=gpus, dtype="bfloat16")
    layer = 2048 * 4 + (2 * 4096 + 2 * max(512, 128 * gpus)) / gpus + 128 * 3 * (2048 + 768 / gpus) + 2048 + 128
    _, slots = adapter_bytes(CONFIG, hardware, 32, merges=False)
    assert slots == 2 * 32 * (48 * layer + 2 * (151936 + 2048))
    assert slots / 2**30 == pytest.approx(gib, abs=0.0005)


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("config", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_vllm_sets_aside_what_is_counted(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], gpus: int) -> None:
    """By its own layers as the first of several GPUs makes them, on a device that holds no numbers."""
    monkeypatch.setattr("vllm.distributed.parallel_state._TP", SimpleNamespace(world_size=gpus, rank_in_group=0))
    layer, ends = set_aside(config)
    assert slot_parameters(config, 8, gpus) == 3 * layer + ends


def set_aside(config: dict[str, Any]) -> tuple[int, int]:
    """(values of one layer, of embedding and head) at rank 8."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.config.lora import LoRAConfig
    from vllm.distributed import get_tensor_model_parallel_world_size
    from vllm.lora.layers import FusedMoEWithLoRA
    from vllm.lora.utils import from_layer, from_layer_logits_processor
    from vllm.model_executor.layers import linear
    from vllm.model_executor.layers.logits_processor import LogitsProcessor
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    hidden, inter, heads, kv_heads = 64, config["intermediate_size"], 8, 2
    lora = LoRAConfig(max_lora_rank=8, max_loras=1)
    lora.lora_dtype = torch.bfloat16

    def adapted(layer: torch.nn.Module, *packed: str) -> int:
        return values(from_layer(layer, 1, lora, [*packed], None))

    with set_current_vllm_config(VllmConfig()), torch.device("meta"):
        layer = adapted(linear.QKVParallelLinear(hidden, 16, heads, kv_heads, bias=False), "q", "k", "v")
        layer += adapted(linear.RowParallelLinear(heads * 16, hidden, bias=False))
        if experts := config.get("num_experts"):
            layer += adapted(linear.ReplicatedLinear(hidden, experts, bias=False))
            # it cannot be made whole without kernels for a GPU
            mixture: Any = FusedMoEWithLoRA.__new__(FusedMoEWithLoRA)
            torch.nn.Module.__init__(mixture)
            tp = get_tensor_model_parallel_world_size()
            mixture._w13_slices, mixture.tp_size, mixture.device = 2, tp, "meta"
            mixture.moe_config = SimpleNamespace(
                hidden_dim=hidden,
                num_experts=experts,
                num_local_experts=experts,
                intermediate_size_per_partition=config["moe_intermediate_size"] // tp,
                moe_parallel_config=SimpleNamespace(use_ep=False),
            )
            mixture.create_lora_weights(1, lora)
            layer += values(mixture, "w13_lora_a", "w13_lora_b", "w2_lora_a", "w2_lora_b")
        else:
            layer += adapted(linear.MergedColumnParallelLinear(hidden, [inter, inter], bias=False), "gate", "up")
            layer += adapted(linear.RowParallelLinear(inter, hidden, bias=False))
        vocabulary = config["vocab_size"]
        head = from_layer_logits_processor(LogitsProcessor(vocabulary), ParallelLMHead(vocabulary, hidden), 1, lora)
        return layer, adapted(VocabParallelEmbedding(vocabulary, hidden)) + values(head)


def values(layer: Any, *names: str) -> int:
    stacked = (getattr(layer, f"{name}_stacked") for name in names or ("lora_a", "lora_b"))
    return sum(tensor.numel() for each in stacked for tensor in ([each] if isinstance(each, torch.Tensor) else each))
